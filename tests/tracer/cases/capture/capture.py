# What AOTAutograd makes of a function, under names that a person can read.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === Forward and backward have the users names
# fx: x=f32[8, 16], w=f32[16, 32]
def f(x, w):
    h = x @ w
    y = torch.relu(h)
    return y
#: f [backward, forward]() -> f32[8, 32]
#:   backward:
#:     detach_1: f32[8, 32] = placeholder
#:     t: f32[16, 8](1, 16) = placeholder
#:     t_1: f32[32, 16](1, 32) = placeholder
#:     grad_y: f32[8, 32] = placeholder
#:     threshold_backward: f32[8, 32] = aten.threshold_backward.default(grad_y, detach_1, 0)
#:     grad_w: f32[16, 32] = aten.mm.default(t, threshold_backward)
#:     grad_x: f32[8, 16] = aten.mm.default(threshold_backward, t_1)
#:     return (grad_x, grad_w)
#:   forward:
#:     x: f32[8, 16] = placeholder
#:     w: f32[16, 32] = placeholder
#:     h: f32[8, 32] = aten.mm.default(x, w)
#:     y: f32[8, 32] = aten.relu.default(h)
#:     detach: f32[8, 32] = aten.detach.default(y)
#:     detach_1: f32[8, 32] = aten.detach.default(detach)
#:     t: f32[16, 8](1, 16) = aten.t.default(x)
#:     t_1: f32[32, 16](1, 32) = aten.t.default(w)
#:     return (y, detach_1, t, t_1)

# === A mutated input is written back
# fx: x=f32[4], state=f32[4]
def f(x, state):
    state.mul_(0.9)
    return x + state
#: f [forward]() -> f32[4]
#:   forward:
#:     x: f32[4] = placeholder
#:     state: f32[4] = placeholder
#:     mul: f32[4] = aten.mul.Tensor(state, 0.9)
#:     add: f32[4] = aten.add.Tensor(x, mul)
#:     copy: f32[4] = aten.copy_.default(state, mul)
#:     return (add,)

# === The same tensor twice a detached one and values that are no tensors
# fx: x=f32[4], w=f32[4], n=3, mode='sum'
def f(x: Tensor, w: Tensor, n: int, mode: str):
    return {"a": x * x, "b": (w.detach() * x, n), "c": mode}
#: f [forward]() -> f32[4], f32[4]
#:   forward:
#:     x: f32[4] = placeholder
#:     w: f32[4] = placeholder
#:     mul: f32[4] = aten.mul.Tensor(x, x)
#:     detach: f32[4] = aten.detach.default(w)
#:     mul_1: f32[4] = aten.mul.Tensor(detach, x)
#:     return (mul, mul_1, x, detach)

# === Dataclass outputs and container inputs
from dataclasses import dataclass

@dataclass
class Out:
    logits: Tensor
    loss: Tensor

# fx: xs=(f32[4], f32[4]), named={'w': f32[4]}
def f(xs, named):
    a, b = xs
    y = a * named["w"]
    return Out(y, (y - b).sum())
#: f [forward]() -> f32[4], f32[]
#:   forward:
#:     xs_0: f32[4] = placeholder
#:     xs_1: f32[4] = placeholder
#:     named_w: f32[4] = placeholder
#:     y: f32[4] = aten.mul.Tensor(xs_0, named_w)
#:     sub: f32[4] = aten.sub.Tensor(y, xs_1)
#:     sum_1: f32[] = aten.sum.default(sub)
#:     return (y, sum_1, xs_0, named_w)

# === Outputs that alias an input
# fx: x=f32[4, 8]
def f(x):
    return x.view(-1), x.t(), x * 2
#: f() -> f32[32], f32[8, 4](1, 8), f32[4, 8]

# === A custom autograd function shows its own backward
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad

# fx: x=f32[4]
def f(x):
    return Square.apply(x)
#: f [backward]() -> f32[4]
#:   backward:
#:     x: f32[4] = placeholder
#:     grad_out: f32[4] = placeholder
#:     mul_1: f32[4] = aten.mul.Tensor(x, 2)
#:     grad_x: f32[4] = aten.mul.Tensor(mul_1, grad_out)
#:     return (grad_x,)
