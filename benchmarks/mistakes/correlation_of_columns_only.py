# silent: a covariance matrix is divided by the standard deviations of its columns twice, not of rows and columns
# evidence: none
import torch
from torch import Tensor, nn


def correlation(x: Tensor, eps: float = 1e-8) -> Tensor:
    """Correlation matrix (D, D) of the columns of x (N, D)."""
    x = x - x.mean(dim=0, keepdim=True)
    cov = x.T @ x / (x.size(0) - 1)
    std = cov.diagonal().clamp(min=eps).sqrt()
    return cov / (std[:, None] * std)  # mistake: return cov / (std * std)


class DecorrelationLoss(nn.Module):
    """Keeps the features of two views alike and different features uncorrelated."""

    def __init__(self, weight: float = 0.005):
        super().__init__()
        self.weight = weight

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        invariance = (a - b).pow(2).mean()
        redundancy = a.new_zeros(())
        for x in (a, b):
            c = correlation(x)
            redundancy = redundancy + (c - torch.diag(c.diagonal())).pow(2).sum()
        return invariance + self.weight * redundancy


# run:
a = (torch.randn(64, 12) * torch.rand(12)).requires_grad_(True)
loss = DecorrelationLoss()(a, a.detach() + 0.1 * torch.randn(64, 12))
loss.backward()
print(loss.item())
