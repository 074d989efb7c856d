# Named sizes: they stand as names everywhere, and where the code fixes one, a remark says so.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === View and cat
# fx: x=f32[B, 128]
def f(x):
    b = x.shape[0]
    y = torch.cat([x, x]).view(2 * b, 4, 32)
    return y.transpose(0, 1)
#: f [backward, forward]() -> f32[4, 2*B, 32](32, 128, 1)
#:   backward:
#:     B: None = placeholder
#:     sym_size_int_1: None = placeholder
#:     grad_out: f32[4, 2*B, 32] = placeholder
#:     transpose_1: f32[2*B, 4, 32](32, 64*B, 1) = aten.transpose.int(grad_out, 0, 1)
#:     clone: f32[2*B, 4, 32] = aten.clone.default(transpose_1, memory_format=torch.contiguous_format)
#:     unsafe_view: f32[2*B, 128] = aten._unsafe_view.default(clone, [2*B, 128])
#:     B_1: None = operator.add(0, B)
#:     slice_1: f32[B, 128] = aten.slice.Tensor(unsafe_view, 0, 0, B)
#:     add_2: None = operator.add(B, B)
#:     B_3: None = operator.sub(2*B, B)
#:     add_3: None = operator.add(B, B)
#:     slice_2: f32[B, 128] = aten.slice.Tensor(unsafe_view, 0, B, 2*B)
#:     grad_x: f32[B, 128] = aten.add.Tensor(slice_1, slice_2)
#:     return (grad_x,)
#:   forward:
#:     x: f32[B, 128] = placeholder
#:     cat: f32[2*B, 128] = aten.cat.default([x, x])
#:     B: None = aten.sym_size.int(x, 0)
#:     mul: None = operator.mul(2, B)
#:     y: f32[2*B, 4, 32] = aten.view.default(cat, [2*B, 4, 32])
#:     transpose: f32[4, 2*B, 32](32, 128, 1) = aten.transpose.int(y, 0, 1)
#:     sym_size_int_1: None = aten.sym_size.int(cat, 0)
#:     return (transpose, B, 2*B)

# === A module keeps its own sizes
# fx: x=f32[B, D]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 32)

    def forward(self, x):
        return self.linear(x)
        #      ^^^^^^^^^^^^^^ information[dimension]: `self.linear(x)` only works when D == 64.
#: Net() -> f32[B, 32]
#:   note: sizes in bytes count B as 16

# === A size that the code compares
# fx: x=f32[B, 8]
def f(x):
    if x.shape[0] == 16:
    #  ^^^^^^^^^^^^^^^^ information[dimension]: B becomes 16 here: the code checks `x.shape[0] == 16`.
        return x + 1
    return x * 2
#: f() -> f32[16, 8]

# === The other way is remarked too
# fx: x=f32[B, 8]
def f(x):
    if x.shape[0] > 100:
    #  ^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace is only valid when B <= 100: the code checks `x.shape[0] > 100`.
        return x + 1
    return x * 2
#: f() -> f32[B, 8]

# === Asserts
# fx: x=f32[B, N]
def f(x):
    assert x.shape[0] % 8 == 0
    #      ^^^^^^^^^^^^^^^^^^^ information[dimension]:
    #  the trace is only valid when B % 8 == 0: the code checks `x.shape[0] % 8 == 0`.
    assert x.shape[1] == 33
    #      ^^^^^^^^^^^^^^^^ information[dimension]: N becomes 33 here: the code checks `x.shape[1] == 33`.
    return x * 2
#: f() -> f32[B, 33]

# === Broadcasting with a fixed tensor
# fx: x=f32[B, 8]
def f(x):
    return x + torch.ones(10, 1)
    #      ^^^^^^^^^^^^^^^^^^^^^ information[dimension]: `x + torch.ones(10, 1)` only broadcasts when B == 10.
#: f() -> f32[10, 8]

# === A loop needs the number
# fx: x=f32[T, 8]
def f(x):
    h = x[0]
    for i in range(x.shape[0]):
    #        ^^^^^^^^^^^^^^^^^ information[dimension]: T becomes 16 here: `range(x.shape[0])` needs a concrete number.
        h = h * x[i]
    return h
#: f() -> f32[8]

# === Two names of one size
# fx: x=f32[B, 8], y=f32[T, 8]
def f(x, y):
    return x + y
    #      ^^^^^ information[dimension]: `x + y` only broadcasts when T == B.
#: f() -> f32[B, 8]

# === What is searched takes the name of the size it fits
# fx: x=f32[B, 8]
def f(x, y):
    return x @ x.T + torch.softmax(y, 0)[:, None]
#: f(y=f32[B] · search: sizes that fit) -> f32[B, B]
#:   note: sizes in bytes count B as 16

# === Without names sizes are numbers
# fx: x=f32[6, 8]
def f(x):
    if x.shape[0] == 6:
        return x + 1
    return x
#: f() -> f32[6, 8]
