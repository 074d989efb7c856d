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

# === What goes on only with values has some that are drawn
# fx: x=f32[6, 8]
def f(x):
    lengths = torch.nn.functional.dropout(x, 0.5).sum(1).exp().clamp(1, 3).round().long()
    rows = [r.expand(int(n), 8) for r, n in zip(x, lengths) if n > 0]
    #                ^^^^^^ information[dimension]: the value of `int(n)` is assumed: 3, computed from random values.
    #                ^^^^^^ information[dimension]:
    #  `rows = [r.expand(int(n), 8) for r, n in zip(x, lengths) if n > 0]` turns a tensor into a Python number, and a
    #  trace has shapes but no values; the trace continues with random values. Keep it a tensor, or pass the numbers
    #  as an argument.
    #                                                          ^^^^^ information[dimension]:
    #  the value of `n > 0` is assumed: True, computed from random values.
    return torch.cat(rows)
#: f() -> f32[12, 8]
#:   note: traced with random values: the code needs the values of tensors

# === Numbers that a call gives are those of the trace
def padded(x, lengths):
    return torch.relu(x[:, : max(lengths)])

def main():
    padded(torch.randn(2, 10, 3), torch.tensor([7, 4]))
#: padded(x=f32[2, 10, 3], lengths=i64[2] · call site `padded(torch.randn(2, 10, 3), torch.tensor([7, 4]))`) -> f32[2,
#:   7, 3]

# === A layer that is drawn has a backward graph
class Repeat(nn.Module):
    def __init__(self):
        super().__init__()
        self.lengths = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Dropout(0.1), nn.Linear(8, 1))

    def forward(self, x):
        counts = self.lengths(x).squeeze(-1).exp().round().long()
        rows = [torch.cat([row.expand(max(int(n), 1), 8) for row, n in zip(*pair)]) for pair in zip(x, counts)]
        #                                 ^^^^^^ information[dimension]:
        #  the value of `int(n)` is assumed: 1, computed from random values.
        #                                 ^^^^^^ information[dimension]:
        #  `rows = [torch.cat([row.expand(max(int(n), 1), 8) for row, n in zip(*p…` turns a tensor into a Python
        #  number, and a trace has shapes but no values; the trace continues with random values. Keep it a tensor, or
        #  pass the numbers as an argument.
        return nn.utils.rnn.pad_sequence(rows, batch_first=True)
#: Repeat [backward](x=f32[4, 12, 8] · search) -> f32[4, 31, 8]
#:   note: traced with random values: the code needs the values of tensors
#:   backward:
#:     grad_out: f32[4, 31, 8] = placeholder
#:     zeros: f32[31, 8] = aten.zeros.default([31, 8], dtype=torch.float32, layout=torch.strided, device=torch.device('cpu'))
#:     select_scatter_4: f32[4, 31, 8] = aten.select_scatter.default(grad_out, zeros, 0, 3)
#:     select: f32[31, 8] = aten.select.int(grad_out, 0, 3)
#:     constant_pad_nd_4: f32[31, 8] = aten.constant_pad_nd.default(select, [0, 0, 0, 0])
#:     select_scatter_5: f32[4, 31, 8] = aten.select_scatter.default(select_scatter_4, zeros, 0, 2)
#:     select_1: f32[31, 8] = aten.select.int(select_scatter_4, 0, 2)
#:     constant_pad_nd_5: f32[19, 8] = aten.constant_pad_nd.default(select_1, [0, 0, 0, -12])
#:     select_scatter_6: f32[4, 31, 8] = aten.select_scatter.default(select_scatter_5, zeros, 0, 1)
#:     select_2: f32[31, 8] = aten.select.int(select_scatter_5, 0, 1)
#:     constant_pad_nd_6: f32[21, 8] = aten.constant_pad_nd.default(select_2, [0, 0, 0, -10])
#:     select_3: f32[31, 8] = aten.select.int(select_scatter_6, 0, 0)
#:     constant_pad_nd_7: f32[26, 8] = aten.constant_pad_nd.default(select_3, [0, 0, 0, -5])
#:     slice_1: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 0, 1)
#:     slice_2: f32[2, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 1, 3)
#:     slice_3: f32[2, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 3, 5)
#:     slice_4: f32[5, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 5, 10)
#:     slice_5: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 10, 11)
#:     slice_6: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 11, 12)
#:     slice_7: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 12, 13)
#:     slice_8: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 13, 14)
#:     slice_9: f32[3, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 14, 17)
#:     slice_10: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 17, 18)
#:     slice_11: f32[10, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 18, 28)
#:     slice_12: f32[3, 8] = aten.slice.Tensor(constant_pad_nd_4, 0, 28, 31)
#:     sum_1: f32[1, 8] = aten.sum.dim_IntList(slice_12, [0], True)
#:     view_4: f32[8] = aten.view.default(sum_1, [8])
#:     sum_2: f32[1, 8] = aten.sum.dim_IntList(slice_11, [0], True)
#:     view_5: f32[8] = aten.view.default(sum_2, [8])
#:     sum_3: f32[1, 8] = aten.sum.dim_IntList(slice_10, [0], True)
#:     view_6: f32[8] = aten.view.default(sum_3, [8])
#:     sum_4: f32[1, 8] = aten.sum.dim_IntList(slice_9, [0], True)
#:     view_7: f32[8] = aten.view.default(sum_4, [8])
#:     sum_5: f32[1, 8] = aten.sum.dim_IntList(slice_8, [0], True)
#:     view_8: f32[8] = aten.view.default(sum_5, [8])
#:     sum_6: f32[1, 8] = aten.sum.dim_IntList(slice_7, [0], True)
#:     view_9: f32[8] = aten.view.default(sum_6, [8])
#:     sum_7: f32[1, 8] = aten.sum.dim_IntList(slice_6, [0], True)
#:     view_10: f32[8] = aten.view.default(sum_7, [8])
#:     sum_8: f32[1, 8] = aten.sum.dim_IntList(slice_5, [0], True)
#:     view_11: f32[8] = aten.view.default(sum_8, [8])
#:     sum_9: f32[1, 8] = aten.sum.dim_IntList(slice_4, [0], True)
#:     view_12: f32[8] = aten.view.default(sum_9, [8])
#:     sum_10: f32[1, 8] = aten.sum.dim_IntList(slice_3, [0], True)
#:     view_13: f32[8] = aten.view.default(sum_10, [8])
#:     sum_11: f32[1, 8] = aten.sum.dim_IntList(slice_2, [0], True)
#:     view_14: f32[8] = aten.view.default(sum_11, [8])
#:     sum_12: f32[1, 8] = aten.sum.dim_IntList(slice_1, [0], True)
#:     view_15: f32[8] = aten.view.default(sum_12, [8])
#:     stack: f32[12, 8] = aten.stack.default([view_15, view_14, view_13, view_12, view_11, view_10, view_9, view_8, view_7, view_6, view_5, view_4])
#:     slice_13: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 0, 1)
#:     slice_14: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 1, 2)
#:     slice_15: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 2, 3)
#:     slice_16: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 3, 4)
#:     slice_17: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 4, 5)
#:     slice_18: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 5, 6)
#:     slice_19: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 6, 7)
#:     slice_20: f32[4, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 7, 11)
#:     slice_21: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 11, 12)
#:     slice_22: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 12, 13)
#:     slice_23: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 13, 14)
#:     slice_24: f32[5, 8] = aten.slice.Tensor(constant_pad_nd_5, 0, 14, 19)
#:     sum_13: f32[1, 8] = aten.sum.dim_IntList(slice_24, [0], True)
#:     view_16: f32[8] = aten.view.default(sum_13, [8])
#:     sum_14: f32[1, 8] = aten.sum.dim_IntList(slice_23, [0], True)
#:     view_17: f32[8] = aten.view.default(sum_14, [8])
#:     sum_15: f32[1, 8] = aten.sum.dim_IntList(slice_22, [0], True)
#:     view_18: f32[8] = aten.view.default(sum_15, [8])
#:     sum_16: f32[1, 8] = aten.sum.dim_IntList(slice_21, [0], True)
#:     view_19: f32[8] = aten.view.default(sum_16, [8])
#:     sum_17: f32[1, 8] = aten.sum.dim_IntList(slice_20, [0], True)
#:     view_20: f32[8] = aten.view.default(sum_17, [8])
#:     sum_18: f32[1, 8] = aten.sum.dim_IntList(slice_19, [0], True)
#:     view_21: f32[8] = aten.view.default(sum_18, [8])
#:     sum_19: f32[1, 8] = aten.sum.dim_IntList(slice_18, [0], True)
#:     view_22: f32[8] = aten.view.default(sum_19, [8])
#:     sum_20: f32[1, 8] = aten.sum.dim_IntList(slice_17, [0], True)
#:     view_23: f32[8] = aten.view.default(sum_20, [8])
#:     sum_21: f32[1, 8] = aten.sum.dim_IntList(slice_16, [0], True)
#:     view_24: f32[8] = aten.view.default(sum_21, [8])
#:     sum_22: f32[1, 8] = aten.sum.dim_IntList(slice_15, [0], True)
#:     view_25: f32[8] = aten.view.default(sum_22, [8])
#:     sum_23: f32[1, 8] = aten.sum.dim_IntList(slice_14, [0], True)
#:     view_26: f32[8] = aten.view.default(sum_23, [8])
#:     sum_24: f32[1, 8] = aten.sum.dim_IntList(slice_13, [0], True)
#:     view_27: f32[8] = aten.view.default(sum_24, [8])
#:     stack_1: f32[12, 8] = aten.stack.default([view_27, view_26, view_25, view_24, view_23, view_22, view_21, view_20, view_19, view_18, view_17, view_16])
#:     slice_25: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 0, 1)
#:     slice_26: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 1, 2)
#:     slice_27: f32[7, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 2, 9)
#:     slice_28: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 9, 10)
#:     slice_29: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 10, 11)
#:     slice_30: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 11, 12)
#:     slice_31: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 12, 13)
#:     slice_32: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 13, 14)
#:     slice_33: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 14, 15)
#:     slice_34: f32[4, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 15, 19)
#:     slice_35: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 19, 20)
#:     slice_36: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_6, 0, 20, 21)
#:     sum_25: f32[1, 8] = aten.sum.dim_IntList(slice_36, [0], True)
#:     view_28: f32[8] = aten.view.default(sum_25, [8])
#:     sum_26: f32[1, 8] = aten.sum.dim_IntList(slice_35, [0], True)
#:     view_29: f32[8] = aten.view.default(sum_26, [8])
#:     sum_27: f32[1, 8] = aten.sum.dim_IntList(slice_34, [0], True)
#:     view_30: f32[8] = aten.view.default(sum_27, [8])
#:     sum_28: f32[1, 8] = aten.sum.dim_IntList(slice_33, [0], True)
#:     view_31: f32[8] = aten.view.default(sum_28, [8])
#:     sum_29: f32[1, 8] = aten.sum.dim_IntList(slice_32, [0], True)
#:     view_32: f32[8] = aten.view.default(sum_29, [8])
#:     sum_30: f32[1, 8] = aten.sum.dim_IntList(slice_31, [0], True)
#:     view_33: f32[8] = aten.view.default(sum_30, [8])
#:     sum_31: f32[1, 8] = aten.sum.dim_IntList(slice_30, [0], True)
#:     view_34: f32[8] = aten.view.default(sum_31, [8])
#:     sum_32: f32[1, 8] = aten.sum.dim_IntList(slice_29, [0], True)
#:     view_35: f32[8] = aten.view.default(sum_32, [8])
#:     sum_33: f32[1, 8] = aten.sum.dim_IntList(slice_28, [0], True)
#:     view_36: f32[8] = aten.view.default(sum_33, [8])
#:     sum_34: f32[1, 8] = aten.sum.dim_IntList(slice_27, [0], True)
#:     view_37: f32[8] = aten.view.default(sum_34, [8])
#:     sum_35: f32[1, 8] = aten.sum.dim_IntList(slice_26, [0], True)
#:     view_38: f32[8] = aten.view.default(sum_35, [8])
#:     sum_36: f32[1, 8] = aten.sum.dim_IntList(slice_25, [0], True)
#:     view_39: f32[8] = aten.view.default(sum_36, [8])
#:     stack_2: f32[12, 8] = aten.stack.default([view_39, view_38, view_37, view_36, view_35, view_34, view_33, view_32, view_31, view_30, view_29, view_28])
#:     slice_37: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 0, 1)
#:     slice_38: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 1, 2)
#:     slice_39: f32[4, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 2, 6)
#:     slice_40: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 6, 7)
#:     slice_41: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 7, 8)
#:     slice_42: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 8, 9)
#:     slice_43: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 9, 10)
#:     slice_44: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 10, 11)
#:     slice_45: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 11, 12)
#:     slice_46: f32[8, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 12, 20)
#:     slice_47: f32[1, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 20, 21)
#:     slice_48: f32[5, 8] = aten.slice.Tensor(constant_pad_nd_7, 0, 21, 26)
#:     sum_37: f32[1, 8] = aten.sum.dim_IntList(slice_48, [0], True)
#:     view_40: f32[8] = aten.view.default(sum_37, [8])
#:     sum_38: f32[1, 8] = aten.sum.dim_IntList(slice_47, [0], True)
#:     view_41: f32[8] = aten.view.default(sum_38, [8])
#:     sum_39: f32[1, 8] = aten.sum.dim_IntList(slice_46, [0], True)
#:     view_42: f32[8] = aten.view.default(sum_39, [8])
#:     sum_40: f32[1, 8] = aten.sum.dim_IntList(slice_45, [0], True)
#:     view_43: f32[8] = aten.view.default(sum_40, [8])
#:     sum_41: f32[1, 8] = aten.sum.dim_IntList(slice_44, [0], True)
#:     view_44: f32[8] = aten.view.default(sum_41, [8])
#:     sum_42: f32[1, 8] = aten.sum.dim_IntList(slice_43, [0], True)
#:     view_45: f32[8] = aten.view.default(sum_42, [8])
#:     sum_43: f32[1, 8] = aten.sum.dim_IntList(slice_42, [0], True)
#:     view_46: f32[8] = aten.view.default(sum_43, [8])
#:     sum_44: f32[1, 8] = aten.sum.dim_IntList(slice_41, [0], True)
#:     view_47: f32[8] = aten.view.default(sum_44, [8])
#:     sum_45: f32[1, 8] = aten.sum.dim_IntList(slice_40, [0], True)
#:     view_48: f32[8] = aten.view.default(sum_45, [8])
#:     sum_46: f32[1, 8] = aten.sum.dim_IntList(slice_39, [0], True)
#:     view_49: f32[8] = aten.view.default(sum_46, [8])
#:     sum_47: f32[1, 8] = aten.sum.dim_IntList(slice_38, [0], True)
#:     view_50: f32[8] = aten.view.default(sum_47, [8])
#:     sum_48: f32[1, 8] = aten.sum.dim_IntList(slice_37, [0], True)
#:     view_51: f32[8] = aten.view.default(sum_48, [8])
#:     stack_3: f32[12, 8] = aten.stack.default([view_51, view_50, view_49, view_48, view_47, view_46, view_45, view_44, view_43, view_42, view_41, view_40])
#:     grad_x: f32[4, 12, 8] = aten.stack.default([stack_3, stack_2, stack_1, stack])
#:     return (None, None, None, None, None, None, grad_x)

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
