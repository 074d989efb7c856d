# shows: lenses
import torch


# fx: x=f32[4, 8]
@torch.no_grad()
def largest(x):
#   ^^^^^^^ lens 1 op · nothing to differentiate
#   ^^^^^^^ lens show inference graph
#   ^^^^^^^ lens passes
#   ^^^^^^^ lens why not fused
#   ^^^^^^^ lens generate Triton kernel
    return x.argmax(-1)
