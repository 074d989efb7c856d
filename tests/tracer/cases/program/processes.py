# Distributed code, on one process.
import torch
import torch.nn.functional as F
from torch import nn
from torch import Tensor

# === The group has the size that the program says
import os
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

# fx: x=f32[4, 8]
def f(x):
    dist.init_process_group("nccl", rank=1, world_size=4)
    out = x.new_empty(4 * dist.get_world_size(), 8)
    dist.all_gather_into_tensor(out, x)
    return out * dist.get_rank()
#: f() -> f32[16, 8]

# === A model that is replicated where it is traced
import os
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

# fx: x=f32[4, 8]
def f(x):
    return DistributedDataParallel(nn.Linear(8, 4))(x)
#: f() -> f32[4, 4]
#:   note: DistributedDataParallel averages the gradients over all processes, outside of these graphs
