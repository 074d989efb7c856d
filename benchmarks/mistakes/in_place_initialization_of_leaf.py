# crash: a parameter is changed in place when it is set up, "a view of a leaf Variable that requires grad"
# evidence: none
import math

import torch
from torch import nn


class GatedRecurrentCell(nn.Module):
    """A LSTM cell with its gates in one matrix, and the bias of the forget gate at one."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.hidden_size = hidden_size
        self.weight = nn.Parameter(torch.empty(4 * hidden_size, input_size + hidden_size))
        self.bias = nn.Parameter(torch.zeros(4 * hidden_size))
        nn.init.uniform_(self.weight, -1 / math.sqrt(hidden_size), 1 / math.sqrt(hidden_size))
        self.bias.data[hidden_size : 2 * hidden_size] = 1.0  # mistake: self.bias[hidden_size : 2 * hidden_size] = 1.0

    def forward(self, x: torch.Tensor, state: tuple[torch.Tensor, torch.Tensor]):
        # x: (batch, input_size); both of state: (batch, hidden_size)
        h, c = state
        gates = nn.functional.linear(torch.cat([x, h], dim=1), self.weight, self.bias)
        i, f, g, o = gates.chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


# run:
h, _ = GatedRecurrentCell(10, 20)(torch.randn(3, 10), (torch.zeros(3, 20), torch.zeros(3, 20)))
h.sum().backward()
