# Operations that are given functions: control flow, scans and FlexAttention.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === What is wrong in a branch
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

# fx: x=f32[4, 8]
def f(x):
    return torch.cond(x.sum() > 0, lambda t: t @ t, lambda t: t, (x,))
    #      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ error[shape]:
    #  matrices of 4×8 and 4×8 cannot be multiplied: the inner sizes 8 and 4 differ (x.sum() > 0: b8[], (x,): (f32[4,
    #  8],)).
#: f()

# === What is compiled is traced as it is written
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

# fx: x=f32[4, 8]
class Compiled(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
        self.fc.compile()
        self.compile(dynamic=True)
        self.act = torch.compile(nn.GELU(), mode="max-autotune")

    @torch.compile(fullgraph=True)
    def scaled(self, x):
        return x * 2

    def forward(self, x):
        return self.act(self.fc(self.scaled(x)))
#: Compiled [forward]() -> f32[4, 8]
#:   forward:
#:     fc_weight: f32[8, 8] = placeholder
#:     fc_bias: f32[8] = placeholder
#:     x: f32[4, 8] = placeholder
#:     mul: f32[4, 8] = aten.mul.Tensor(x, 2)
#:     t: f32[8, 8](1, 8) = aten.t.default(fc_weight)
#:     addmm: f32[4, 8] = aten.addmm.default(fc_bias, mul, t)
#:     gelu: f32[4, 8] = aten.gelu.default(addmm)
#:     return (gelu, fc_weight, mul, addmm)
