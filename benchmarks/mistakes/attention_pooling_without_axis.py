# crash: the weights of the steps are multiplied with their vectors, and have no axis for these
# evidence: none
import torch
import torch.nn as nn


class AttentionPooling(nn.Module):
    """A weighted mean over time (speaker verification, sentence embeddings)."""

    def __init__(self, width: int, hidden: int, out: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, 1))
        self.project = nn.Linear(width, out)

    def forward(self, frames, mask=None):
        scores = self.attention(self.norm(frames)).squeeze(-1)
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=1)
        pooled = (weights.unsqueeze(-1) * frames).sum(dim=1)  # mistake: pooled = (weights * frames).sum(dim=1)
        return self.project(pooled)


# run:
AttentionPooling(40, 16, 8)(torch.randn(4, 50, 40)).sum().backward()
