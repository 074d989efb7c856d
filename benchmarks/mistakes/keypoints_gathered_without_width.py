# crash: the features of the best points are gathered with an index that has no axis for the features
# evidence: none
import torch
from torch import nn


class PointSelector(nn.Module):
    """Keeps the points with the highest scores, with their features (batch, points, width)."""

    def __init__(self, width, kept=16):
        super().__init__()
        self.kept = kept
        self.norm = nn.LayerNorm(width)
        self.score = nn.Linear(width, 1)
        self.out = nn.Linear(width, width)

    def forward(self, points):
        b, n, c = points.shape
        scores = self.score(self.norm(points)).squeeze(-1)
        best, index = scores.topk(self.kept, dim=1)
        index = index.unsqueeze(-1).expand(-1, -1, c)  # mistake: index = index.contiguous()
        chosen = points.gather(1, index)
        return self.out(chosen * torch.sigmoid(best).unsqueeze(-1))


# run:
PointSelector(24)(torch.randn(3, 100, 24)).sum().backward()
