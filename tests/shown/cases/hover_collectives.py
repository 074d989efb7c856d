# shows: hovers, costs
# The bytes that each of 8 processes sends on a ring.
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional


# fx: x=f32[64, 256], w=f32[256, 256]
def parallel(x, w):
    dist.init_process_group("nccl", rank=0, world_size=8)
    y = x @ w
    #        ^ hint █ 100% · 25.2 MFLOP · moves 1.1 MiB
    return functional.all_reduce(y, "sum", dist.group.WORLD)
    #                 ^ hover
    #  f32[64, 256]
    #  forward 256 KiB read and written, 112 KiB sent by each process · backward 256 KiB read and written, 112 KiB
    #  sent by each process
    #  forward · 2 ops
    #  _c10d_functional.all_reduce.default(y, 'sum', '0') -> f32[64, 256]
    #  _c10d_functional.wait_tensor.default(all_reduce) -> f32[64, 256]
    #  backward · 2 ops
    #  _c10d_functional.all_reduce.default(grad_out, 'sum', '0') -> f32[64, 256]
    #  _c10d_functional.wait_tensor.default(all_reduce_1) -> f32[64, 256]
    #                                                       ^ hint moves 512 KiB · sends 224 KiB
