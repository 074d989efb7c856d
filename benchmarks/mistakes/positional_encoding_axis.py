# crash: sinusoidal positions made for (length, batch, width) are added to (batch, length, width)
# evidence: none
import math

import torch
import torch.nn as nn


class PositionalEncoding(nn.Module):
    def __init__(self, d_model: int, dropout: float = 0.1, max_len: int = 5000):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(max_len, d_model)
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe.unsqueeze(0))  # mistake: self.register_buffer("pe", pe.unsqueeze(1))

    def forward(self, x):
        """x: (batch, seq_len, d_model)"""
        x = x + self.pe[:, : x.size(1)]  # mistake: x = x + self.pe[: x.size(1)]
        return self.dropout(x)


class Embedder(nn.Module):
    def __init__(self, vocab: int, d_model: int):
        super().__init__()
        self.lut = nn.Embedding(vocab, d_model)
        self.pe = PositionalEncoding(d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, tokens):
        return self.pe(self.lut(tokens) * self.scale)


# run:
Embedder(100, 32)(torch.randint(0, 100, (4, 25))).sum().backward()
