# targets: energy, forces, curvature, scalar, all_slopes, directional, as_rows, mismatched
import functools

import torch
from torch import func, nn
from torch.func import functional_call, jacrev, jvp, vmap

net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))


def energy(params, position):
    return functional_call(net, params, (position,)).sum()


def forces(params, positions):
    return vmap(func.grad(energy, argnums=1), in_dims=(None, 0))(params, positions)


def curvature(x):
    second = jacrev(func.grad(scalar))
    return second(x)


def scalar(x):
    return x.sin().square().sum()


slope = func.grad(scalar)
slopes = functools.partial(func.vmap(slope), chunk_size=2) if torch.cuda.is_available() else vmap(slope)


def all_slopes(batch):
    return slopes(batch)


def directional(x, v):
    return jvp(scalar, (x,), (v,))[1]


def as_rows(x):
    return nn.Flatten()(x)


def mismatched(x):
    return vmap(slope)(x @ torch.ones(3, 2) + torch.ones(3))
    #                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
    #  shapes [3] and [4, 2] do not broadcast: size 3 at dimension -1 does not match (x @ torch.ones(3, 2): f32[4, 2],
    #  torch.ones(3): f32[3]).


def wrapped(function):
    return torch.no_grad()(function)


def describe(names):
    return ", ".join(names)


if __name__ == "__main__":
    weights = dict(net.named_parameters())
    print(energy(weights, torch.randn(3)), forces(weights, torch.randn(5, 3)), all_slopes(torch.randn(4, 3)))
    print(curvature(torch.randn(3)), directional(torch.randn(3), torch.randn(3)))
    print(as_rows(torch.randn(2, 3, 4)))
