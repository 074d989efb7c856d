"""What the passes of this folder are run on."""

import torch
from torch import nn


# fx: x=f32[4, 16]
def scaled(x):
    y = torch.relu(x) + 1.0
    return torch.dropout(y * 0.5, 0.1, True).sigmoid()


# fx: x=f32[8, 32], w=f32[32, 64], b=f32[64]
def biased(x, w, b):
    hidden = torch.relu(x @ w + b)
    again = torch.tanh(x @ w + b)
    return hidden * again.detach()


# fx: init(dim=32), x=f32[8, 32]
class Mlp(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(torch.relu(self.up(x))) + x
