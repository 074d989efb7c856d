# crash: a sequence of modules, which passes on one value, is called with two
# evidence: none
import torch
import torch.nn as nn


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x, mask=None):
        return self.norm(x + self.attn(x, x, x, key_padding_mask=mask, need_weights=False)[0])


class Encoder(nn.Module):
    def __init__(self, dim=32, heads=4, depth=2):
        super().__init__()
        self.layers = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.stack = nn.Sequential(*self.layers)

    def forward(self, x, mask):
        for layer in self.layers:
            x = layer(x, mask)  # mistake: x = self.stack(x, mask)
        return x


# run:
Encoder()(torch.randn(2, 9, 32), torch.zeros(2, 9, dtype=torch.bool)).sum().backward()
