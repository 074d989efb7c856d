# silent: derivatives are columns and the source term a vector, the residual of the equation is a matrix
# evidence: none
from itertools import pairwise

import torch
from torch import Tensor, nn


class BurgersPINN(nn.Module):
    """A physics-informed network for u_t + u u_x = nu u_xx + f."""

    def __init__(self, hidden: int = 32, depth: int = 3, nu: float = 0.01):
        super().__init__()
        sizes = [2] + [hidden] * depth
        layers: list[nn.Module] = []
        for i, o in pairwise(sizes):
            layers += [nn.Linear(i, o), nn.Tanh()]
        self.net = nn.Sequential(*layers, nn.Linear(hidden, 1))
        self.nu = nu

    def u(self, x: Tensor, t: Tensor) -> Tensor:
        return self.net(torch.cat([x, t], dim=1))

    def residual_loss(self, x: Tensor, t: Tensor, source: Tensor) -> Tensor:
        """x and t: (N, 1), source: (N,)"""
        x, t = x.requires_grad_(True), t.requires_grad_(True)
        u = self.u(x, t)
        u_x, u_t = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
        u_xx = torch.autograd.grad(u_x.sum(), x, create_graph=True)[0]
        residual = u_t + u * u_x - self.nu * u_xx
        residual = residual.squeeze(1) - source  # mistake: residual = residual - source
        return residual.pow(2).mean()

    def forward(self, x: Tensor, t: Tensor, source: Tensor) -> Tensor:
        return self.residual_loss(x, t, source)


# run:
loss = BurgersPINN()(torch.rand(50, 1), torch.rand(50, 1), torch.randn(50))
loss.backward()
print(loss.item())
