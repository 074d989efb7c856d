# crash: the frequencies are made by NumPy in double precision, the layer after them has single precision
# evidence: none
import math

import numpy as np
import torch
from torch import nn


class TimeEmbedding(nn.Module):
    """Sines and cosines of a time step, and a network on them."""

    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.width = width
        self.first = nn.Linear(width, hidden)
        self.second = nn.Linear(hidden, hidden)

    def forward(self, t):
        half = self.width // 2
        steps = np.exp(-math.log(10000.0) * np.arange(half) / half)
        frequencies = torch.from_numpy(steps).float().to(t.device)  # mistake: frequencies = torch.from_numpy(steps).to(t.device)
        angles = t[:, None].float() * frequencies[None]
        emb = torch.cat([angles.sin(), angles.cos()], dim=-1)
        return self.second(torch.nn.functional.silu(self.first(emb)))


# run:
TimeEmbedding(32, 64)(torch.randint(0, 1000, (8,))).sum().backward()
