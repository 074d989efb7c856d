# crash: the capsules that are multiplied with the weights of a routing layer are no columns
# evidence: none
import torch
import torch.nn as nn


def squash(x, dim=-1):
    norm = x.pow(2).sum(dim=dim, keepdim=True)
    return norm / (1 + norm) * x / (norm + 1e-8).sqrt()


class DigitCapsules(nn.Module):
    def __init__(self, num_routes=72, in_dim=8, num_caps=10, out_dim=16):
        super().__init__()
        self.W = nn.Parameter(0.01 * torch.randn(1, num_routes, num_caps, out_dim, in_dim))

    def forward(self, u):
        """u: (batch, routes, in_dim)"""
        u = u[:, :, None, :, None]  # mistake: u = u[:, :, None, :]
        u_hat = torch.matmul(self.W, u).squeeze(-1)
        b = u_hat.new_zeros(*u_hat.shape[:3], 1)
        for _ in range(3):
            v = squash((b.softmax(dim=2) * u_hat).sum(dim=1, keepdim=True))
            b = b + (u_hat * v).sum(dim=-1, keepdim=True)
        return v.squeeze(1)


# run:
DigitCapsules()(torch.randn(4, 72, 8)).sum().backward()
