# crash: the weights that a hypernetwork makes are viewed as (in, out), and multiplied from the wrong side
# evidence: config
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class HyperConfig:
    task_dim: int = 16
    in_dim: int = 24
    hidden_dim: int = 48
    out_dim: int = 5


class HyperLinear(nn.Module):
    """A linear layer whose weights come from an embedding of the task."""

    def __init__(self, task_dim, in_dim, out_dim):
        super().__init__()
        self.in_dim, self.out_dim = in_dim, out_dim
        self.to_weight = nn.Linear(task_dim, in_dim * out_dim)
        self.to_bias = nn.Linear(task_dim, out_dim)

    def forward(self, x, task):
        # x: (tasks, examples, in_dim), task: (tasks, task_dim)
        w = self.to_weight(task).view(-1, self.in_dim, self.out_dim)
        b = self.to_bias(task).unsqueeze(1)
        return torch.baddbmm(b, x, w)  # mistake: return torch.baddbmm(b, w, x)


class HyperMLP(nn.Module):
    def __init__(self, cfg: HyperConfig):
        super().__init__()
        self.fc1 = HyperLinear(cfg.task_dim, cfg.in_dim, cfg.hidden_dim)
        self.fc2 = HyperLinear(cfg.task_dim, cfg.hidden_dim, cfg.out_dim)

    def forward(self, x, task):
        return self.fc2(torch.relu(self.fc1(x, task)), task)


def build_model(cfg: HyperConfig | None = None) -> HyperMLP:
    return HyperMLP(cfg or HyperConfig())


# run:
build_model()(torch.randn(4, 10, 24), torch.randn(4, 16)).sum().backward()
