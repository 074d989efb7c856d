# crash: learned queries have no axis for the batch, and are expanded as if they had only one for the width
# evidence: none
import torch
from torch import nn


class Resampler(nn.Module):
    """Learned queries that attend to the features of an image."""

    def __init__(self, width, queries=32, heads=4):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(queries, width) * 0.02)
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, features):
        b = features.shape[0]
        q = self.queries.unsqueeze(0).expand(b, -1, -1)  # mistake: q = self.queries.expand(b, -1)
        kv = torch.cat([self.norm(features), q], dim=1)
        x, _ = self.attention(q, kv, kv)
        return x + self.mlp(x)


# run:
Resampler(48)(torch.randn(2, 50, 48)).sum().backward()
