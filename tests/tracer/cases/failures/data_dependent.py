# Code that needs the values of tensors: traced with names in their place, or explained.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === A number that is carried along
# fx: x=f32[4, 8]
def f(x):
    scale = x.max().item()
    return x / scale
#: f [forward]() -> f32[4, 8]
#:   note: numbers and sizes that depend on the values of tensors are shown as names
#:   forward:
#:     x: f32[4, 8] = placeholder
#:     max_1: f32[] = aten.max.default(x)
#:     convert_element_type_default: f64[] = prims.convert_element_type.default(max_1, torch.float64)
#:     convert_element_type_default_1: f32[] = prims.convert_element_type.default(convert_element_type_default, torch.float32)
#:     div_tensor: f32[4, 8] = aten.div.Tensor(x, convert_element_type_default_1)
#:     return (div_tensor, convert_element_type_default_1)

# === A number that is a size
# fx: x=f32[4, 16], lengths=i64[4]
def f(x, lengths):
    n = lengths.max().item()
    return x[:, :n] * 2
#: f [backward, forward]() -> f32[4, n_1]
#:   note: numbers and sizes that depend on the values of tensors are shown as names
#:   backward:
#:     n: None = placeholder
#:     grad_out: f32[4, n_1] = placeholder
#:     mul_1: f32[4, n_1] = aten.mul.Tensor(grad_out, 2)
#:     grad_x: f32[4, 16] = aten.slice_backward.default(mul_1, [4, 16], 1, 0, n, 1)
#:     return (grad_x, None)
#:   forward:
#:     x: f32[4, 16] = placeholder
#:     lengths: i64[4] = placeholder
#:     max_1: i64[] = aten.max.default(lengths)
#:     n: None = aten._local_scalar_dense.default(max_1)
#:     slice_1: f32[4, n_1](16, 1) = aten.slice.Tensor(x, 1, 0, n)
#:     mul: f32[4, n_1] = aten.mul.Tensor(slice_1, 2)
#:     return (mul, n)

# === A mask and a named size
# fx: x=f32[B, 8], m=b8[B]
def f(x, m):
    return x[m] * 2
#: f [backward, forward]() -> f32[num_nonzero, 8]
#:   note: sizes in bytes count B as 16
#:   note: numbers and sizes that depend on the values of tensors are shown as names
#:   backward:
#:     B: None = placeholder
#:     m: b8[B] = placeholder
#:     grad_out: f32[num_nonzero, 8] = placeholder
#:     mul_1: f32[num_nonzero, 8] = aten.mul.Tensor(grad_out, 2)
#:     new_zeros: f32[B, 8] = aten.new_zeros.default(mul_1, [B, 8], dtype=torch.float32, layout=torch.strided, device=torch.device('cpu'))
#:     grad_x: f32[B, 8] = aten.index_put.default(new_zeros, [m], mul_1, True)
#:     return (grad_x, None)
#:   forward:
#:     x: f32[B, 8] = placeholder
#:     m: b8[B] = placeholder
#:     index: f32[num_nonzero, 8] = aten.index.Tensor(x, [m])
#:     mul: f32[num_nonzero, 8] = aten.mul.Tensor(index, 2)
#:     B: None = aten.sym_size.int(x, 0)
#:     return (mul, m, B)

# === Unique and tolist
# fx: x=f32[4, 8], ids=i64[2]
def f(x, ids):
    a, b = torch.split(x, ids.tolist())
    return a.sum() * torch.unique(ids), b * 2
#: f() -> f32[num_unique], f32[item_1, 8]
#:   note: numbers and sizes that depend on the values of tensors are shown as names

# === Numbers that a call gives are those of the trace
def padded(x, lengths):
    return torch.relu(x[:, : max(lengths)])

def main():
    padded(torch.randn(2, 10, 3), torch.tensor([7, 4]))
#: padded(x=f32[2, 10, 3], lengths=i64[2] · call site `padded(torch.randn(2, 10, 3), torch.tensor([7, 4]))`) -> f32[2,
#:   7, 3]

# === Checks that compiled code leaves out
# fx: x=f32[4, 8]
def f(x):
    if not torch.compiler.is_compiling():
        x = x / max(x.min(), x.max())
    return x.log()
#: f [forward]() -> f32[4, 8]
#:   note: traced as if compiling (`torch.compiler.is_compiling()` is true); otherwise the code needs tensor values
#:   forward:
#:     x: f32[4, 8] = placeholder
#:     log: f32[4, 8] = aten.log.default(x)
#:     return (log, x)

# === A split at the values of a tensor is traced
# PyTorch reads the places of the split in C++, without an operation.
# fx: x=f32[16], ends=i64[3]
def f(x, ends):
    return [part.sum() for part in x.tensor_split(ends)]
#: f() -> f32[], f32[], f32[], f32[]
#:   note: numbers and sizes that depend on the values of tensors are shown as names
