# crash: the time of each example is a vector, and is concatenated to a matrix without a column dimension
# evidence: none
import torch
from torch import Tensor, nn


class VelocityField(nn.Module):
    def __init__(self, dim: int = 2, hidden: int = 128):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim + 1, hidden),
            nn.SiLU(),
            nn.Linear(hidden, hidden),
            nn.SiLU(),
            nn.Linear(hidden, dim),
        )

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        # x: (B, D), t: (B,)
        return self.net(torch.cat([x, t[:, None]], dim=-1))  # mistake: return self.net(torch.cat([x, t], dim=-1))


class FlowMatching(nn.Module):
    """Conditional flow matching with straight paths."""

    def __init__(self, field: VelocityField):
        super().__init__()
        self.field = field

    def forward(self, x1: Tensor) -> Tensor:
        x0 = torch.randn_like(x1)
        t = torch.rand(x1.shape[0], device=x1.device)
        xt = (1 - t[:, None]) * x0 + t[:, None] * x1
        return ((self.field(xt, t) - (x1 - x0)) ** 2).mean()


# run:
FlowMatching(VelocityField())(torch.randn(256, 2)).backward()
