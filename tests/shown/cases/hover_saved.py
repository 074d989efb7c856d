# shows: hovers
# What a line saves for backward, and why.
import torch


# fx: x=f32[64, 256]
def soft(x):
    y = torch.softmax(x, -1)
    #         ^ hover
    #  f32[64, 256]
    #  forward 128 KiB read and written · backward 320 KiB read and written
    #  saves `y`, 64 KiB, for `mul_1`, `detach` in backward
    #  *PyTorch does not recompute this operation. To recompute it: 1 op · 128 KiB read and written*
    #  forward · 1 op
    #  aten._softmax.default(x, -1, False) -> f32[64, 256]
    #  backward · 4 ops
    #  aten.add.Tensor(mul_1, mul_1) -> f32[64, 256]
    #  aten.detach.default(y) -> f32[64, 256]
    #  aten.detach.default(detach) -> f32[64, 256]
    #  aten._softmax_backward_data.default(add, detach_1, -1, torch.float32) -> f32[64, 256]
    return y * y
