# silent: the hardest positive keeps its dimension and the hardest negative does not, the margin is between all pairs
# evidence: none
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class BatchHardTripletLoss(nn.Module):
    """For each anchor its farthest positive and its nearest negative."""

    def __init__(self, margin: float = 0.3, normalize: bool = True):
        super().__init__()
        self.margin = margin
        self.normalize = normalize

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        # embeddings: (N, D), labels: (N,)
        if self.normalize:
            embeddings = F.normalize(embeddings, dim=1)
        dist = torch.cdist(embeddings, embeddings)
        same = labels[:, None] == labels[None, :]
        positive, negative = dist.masked_fill(~same, 0.0), dist.masked_fill(same, float("inf"))
        hardest_positive = positive.amax(dim=1)  # mistake: hardest_positive = positive.amax(dim=1, keepdim=True)
        hardest_negative = negative.amin(dim=1)
        return F.relu(hardest_positive - hardest_negative + self.margin).mean()


class ReIDNet(nn.Module):
    def __init__(self, in_dim: int = 256, dim: int = 64):
        super().__init__()
        self.neck = nn.Sequential(nn.Linear(in_dim, dim), nn.BatchNorm1d(dim))
        self.loss = BatchHardTripletLoss()

    def forward(self, features: Tensor, identities: Tensor) -> Tensor:
        return self.loss(self.neck(features), identities)


# run:
identities = torch.arange(6).repeat_interleave(4)
loss = ReIDNet()(torch.randn(6, 256)[identities] + torch.randn(24, 256), identities)
loss.backward()
print(loss.item())
