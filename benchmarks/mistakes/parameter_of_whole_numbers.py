# crash: a parameter is made of whole numbers, which have no gradients
# evidence: none
import torch
import torch.nn.functional as F
from torch import nn


class ScaledClassifier(nn.Module):
    """A cosine classifier with a learned scale for each class."""

    def __init__(self, width: int, classes: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, width))
        nn.init.xavier_uniform_(self.weight)
        start = torch.full((classes,), 10.0)  # mistake: start = torch.full((classes,), 10)
        self.scale = nn.Parameter(start)

    def forward(self, x):
        cosine = F.linear(F.normalize(x, dim=1), F.normalize(self.weight, dim=1))
        return cosine * self.scale


# run:
ScaledClassifier(32, 10)(torch.randn(8, 32)).sum().backward()
