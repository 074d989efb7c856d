# crash: the input of a state space meets its states without a dimension for them
# evidence: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class StateSpace(nn.Module):
    def __init__(self, d_inner=32, d_state=16):
        super().__init__()
        self.d_state = d_state
        self.to_dt = nn.Linear(d_inner, d_inner)
        self.to_bc = nn.Linear(d_inner, 2 * d_state)
        self.A_log = nn.Parameter(torch.randn(d_inner, d_state))

    def forward(self, x):
        b, length, d = x.shape
        dt = F.softplus(self.to_dt(x))
        B, C = self.to_bc(x).chunk(2, dim=-1)
        A = torch.exp(dt.unsqueeze(-1) * -torch.exp(self.A_log))
        dB = dt.unsqueeze(-1) * B.unsqueeze(2)
        h, ys = x.new_zeros(b, d, self.d_state), []
        for i in range(length):
            h = A[:, i] * h + dB[:, i] * x[:, i].unsqueeze(-1)  # mistake: h = A[:, i] * h + dB[:, i] * x[:, i]
            ys.append((h * C[:, i].unsqueeze(1)).sum(-1))
        return torch.stack(ys, dim=1)


# run:
StateSpace()(torch.randn(4, 6, 32)).sum().backward()
