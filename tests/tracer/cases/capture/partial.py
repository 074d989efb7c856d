# What ran of a target before it failed.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === The whole of what runs but is not captured
class Odd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ZeroDivisionError("no")
       #^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ information[unsupported]:
       #  it runs, but AOTAutograd cannot capture it: ZeroDivisionError: no.
       #  line 17: traced f

# fx: x=f32[4]
def f(x):
    y = x.sin()
    return Odd.apply(y) * 2
#: f [torch]()
#:   torch:
#:     x: f32[4] = placeholder
#:     y: f32[4] = sin(x)
#:     clone: f32[4] = clone(y)
#:     mul: f32[4] = mul(clone, 2)
#:     return mul
