# crash: the layers of the encoder are made for the width of the hidden layer, not for that of the tokens
# evidence: none
import torch
import torch.nn as nn


class TabularTransformer(nn.Module):
    """A transformer over the columns of a table, a token for each number."""

    def __init__(self, columns: int, d_token: int = 64, d_hidden: int = 256, heads: int = 8, classes: int = 2):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, d_token) * 0.1)
        self.bias = nn.Parameter(torch.zeros(columns, d_token))
        self.cls = nn.Parameter(torch.zeros(1, 1, d_token))
        layer = nn.TransformerEncoderLayer(d_token, heads, d_hidden, batch_first=True)  # mistake: layer = nn.TransformerEncoderLayer(d_hidden, heads, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(d_token, classes)

    def forward(self, x):
        tokens = x.unsqueeze(-1) * self.weight + self.bias
        tokens = torch.cat([self.cls.expand(x.size(0), -1, -1), tokens], dim=1)
        return self.head(self.encoder(tokens)[:, 0])


# run:
TabularTransformer(12)(torch.randn(8, 12)).sum().backward()
