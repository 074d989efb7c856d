# Operators of the user's own, with and without fake kernels.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A fake kernel that says something else
from torch.library import Library, custom_op, impl, register_fake

lib = Library("mine", "DEF")
lib.define("double(Tensor x) -> Tensor")

@impl(lib, "double", "CPU")
def double_cpu(x):
    return torch.cat([x, x])

@register_fake("mine::double")
def _(x):
    return x.new_empty(x.size(0), x.size(1))

# fx: x=f32[4, 8]
@torch.no_grad()
def f(x):
    return torch.ops.mine.double(x)
    #      ^^^^^^^^^^^^^^^^^^^^^^^^ warning[dimension]:
    #  the fake kernel of `mine::double` returns f32[4, 8], the operator itself f32[8, 8].
#: f() -> f32[4, 8]
