# crash: the network of a coupling layer gives one value for each dimension, where two are needed
# evidence: none
import torch
import torch.nn as nn


class AffineCoupling(nn.Module):
    def __init__(self, dim=8, hidden=64):
        super().__init__()
        half = dim // 2
        self.net = nn.Sequential(
            nn.Linear(half, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 2 * half),  # mistake: nn.Linear(hidden, half),
        )

    def forward(self, x):
        x1, x2 = x.chunk(2, dim=1)
        s, t = self.net(x1).chunk(2, dim=1)
        s = torch.tanh(s)
        y2 = x2 * torch.exp(s) + t
        return torch.cat([x1, y2], dim=1), s.sum(dim=1)


# run:
AffineCoupling()(torch.randn(16, 8))[0].sum().backward()
