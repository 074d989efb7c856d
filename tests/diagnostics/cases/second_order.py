# targets: energy, second, forward_over_reverse, directional, batched, guessed
import torch
from torch.func import hessian, jacfwd, grad, jacrev, vmap, functional_call, vjp, jvp


def energy(x):
    return (x**2).sum() + x.prod()


def second(x):  # fx: x=f32[5]
    return hessian(energy)(x)


def forward_over_reverse(x):  # fx: x=f32[5]
    return jacfwd(grad(energy))(x)


def directional(x, v):  # fx: x=f32[5], v=f32[5]
    return jvp(energy, (x,), (v,))[1]


def batched(xs):  # fx: xs=f32[3, 5]
    return vmap(hessian(energy))(xs)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^ information[unsupported]:
    #  PyTorch cannot run this on fake tensors, and a trace only has fake tensors. Move it out of the traced function,
    #  or pass the value that it computes as an argument.


def guessed(x):
    return hessian(energy)(x)
