# crash: nn.MultiheadAttention returns its output and the weights, and the pair is added to the residual
# evidence: none
import torch
import torch.nn as nn


class EncoderLayer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, n_heads, dropout=dropout, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model))
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, pad=None):
        h = self.norm1(x)
        attn, _ = self.attn(h, h, h, key_padding_mask=pad)  # mistake: attn = self.attn(h, h, h, key_padding_mask=pad)
        x = x + self.drop(attn)
        return x + self.drop(self.ff(self.norm2(x)))


class Encoder(nn.Module):
    def __init__(self, d_model, n_heads, d_ff, n_layers):
        super().__init__()
        self.layers = nn.ModuleList([EncoderLayer(d_model, n_heads, d_ff) for _ in range(n_layers)])
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x, pad=None):
        for layer in self.layers:
            x = layer(x, pad)
        return self.norm(x)


# run:
Encoder(32, 4, 64, 2)(torch.randn(2, 10, 32)).sum().backward()
