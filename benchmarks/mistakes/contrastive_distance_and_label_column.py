# silent: distances (B,) meet labels (B, 1), and the loss is over all pairs
# evidence: none
import torch
import torch.nn.functional as F
from torch import nn


class ContrastiveLoss(nn.Module):
    """Pulls pairs of the same class together and pushes others apart."""

    def __init__(self, margin: float = 1.0):
        super().__init__()
        self.margin = margin
        self.project = nn.Linear(32, 16)
        self.certainty = nn.Linear(32, 1)

    def forward(self, first, second):
        distance = F.pairwise_distance(self.project(first), self.project(second))
        same = torch.sigmoid(self.certainty(first * second)).squeeze(1)  # mistake: same = torch.sigmoid(self.certainty(first * second))
        near = same * distance.pow(2)  # effect
        far = (1 - same) * F.relu(self.margin - distance).pow(2)
        return (near + far).mean()


# run:
print(ContrastiveLoss()(torch.randn(8, 32), torch.randn(8, 32)).item())
