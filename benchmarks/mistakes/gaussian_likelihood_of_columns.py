# silent: mean and variance are columns and the targets a vector, the likelihood is taken of all pairs
# evidence: config
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass
class EnsembleConfig:
    n_inputs: int = 12
    hidden: int = 48
    members: int = 3
    min_log_var: float = -6.0


class GaussianMLP(nn.Module):
    """A mean and a variance for each example."""

    def __init__(self, cfg: EnsembleConfig):
        super().__init__()
        self.min_log_var = cfg.min_log_var
        self.body = nn.Sequential(nn.Linear(cfg.n_inputs, cfg.hidden), nn.SiLU(), nn.Linear(cfg.hidden, cfg.hidden))
        self.mean = nn.Linear(cfg.hidden, 1)
        self.log_var = nn.Linear(cfg.hidden, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.body(x))
        return self.mean(h), self.log_var(h).clamp(min=self.min_log_var)


class DeepEnsemble(nn.Module):
    def __init__(self, cfg: EnsembleConfig):
        super().__init__()
        self.members = nn.ModuleList([GaussianMLP(cfg) for _ in range(cfg.members)])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        # x: (batch, n_inputs), y: (batch,)
        total = x.new_zeros(())
        for member in self.members:
            mean, log_var = member(x)
            mean, log_var = mean.squeeze(-1), log_var.squeeze(-1)  # mistake: pass
            nll = 0.5 * (log_var + (y - mean) ** 2 / log_var.exp() + math.log(2 * math.pi))
            total = total + nll.mean()
        return total / len(self.members)


# run:
loss = DeepEnsemble(EnsembleConfig())(torch.randn(32, 12), torch.randn(32))
loss.backward()
print(loss.item())
