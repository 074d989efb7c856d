# shows: comments
# What is wrong in a `# fx:` comment.
import torch
from torch import nn


# === what does not parse
# fx: x=f32[8, y=3
#          ^ error cannot parse the `# fx:` comment: not `name=value, …`: '[' was never closed.
def f(x, y):
    return x @ y


# === one of several lines
# fx: é='ü',
# fx: x=f23[8]
#       ^^^ error
#  cannot parse the `# fx:` comment: unknown dtype `f23`; one of f64, f32, f16, f8e4m3fn, f8e5m2, f8e4m3fnuz,
#  f8e5m2fnuz, f8e8m0fnu.
@decorate
def f(x, é):
    return x @ é


# === a parameter that is not there
def f(x, *, y=None):  # fx: x=f32[8], z=3
#                                     ^ error f has no parameter `z`; its parameters are x, y.
    return x @ y


# === a function is not constructed
# fx: init(dim=3), x=f32[8]
#     ^^^^ error `init(…)` only applies to modules and methods; f is a function.
def f(x):
    return x.sin()


# === a function has no mode
# fx: eval(), x=f32[8]
#     ^^^^^^ error `eval()` only applies to modules and methods; f is a function.
def f(x):
    return x.sin()


# === a mode has parentheses
# fx: eval, x=f32[8]
#     ^^^^ error cannot parse the `# fx:` comment: write the mode as `eval()`.
def f(x):
    return x.sin()


# === a mode comes before the inputs
# fx: x=f32[8], eval()
#     ^^^^^^^^^^^^^^^^ error
#  cannot parse the `# fx:` comment: not `name=value, …`: `init(…)` and `eval()` come first, and every input is
#  written as `name=value`.
def f(x):
    return x.sin()


# === an argument of the constructor that is not there
# fx: init(dim=3, width=4), x=f32[8]
#                 ^^^^^ error Block's constructor has no parameter `width`; its parameters are dim.
class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()

    def forward(self, x):
        return x


# === an input that is given twice
# fx: x=f32[8], x=f32[4]
#               ^ error `x` is given twice.
def f(x):
    return x.sin()


# === a comment at nothing
# fx: x=f32[8]
#^^^^^^^^^^^^^ hint
#  This comment is not attached to a function or class: write it directly above one, or first in its body.

def f(x):
    return x.sin()
