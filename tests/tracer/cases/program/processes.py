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
#: f

# === A model that is replicated where it is traced
import os
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

# fx: x=f32[4, 8]
def f(x):
    return DistributedDataParallel(nn.Linear(8, 4))(x)
#: f

# === A distributed parameter has its name
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Linear(8, 32, bias=False)

    def forward(self, x):
        return self.wide(x)

def main():
    net = parallelize_module(Net(), init_device_mesh("cpu", (2,)), {"wide": ColwiseParallel()})
    net(torch.randn(4, 8))

main()
#: Net [forward]

# === A replica moves what it is given to its device
import os
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

def step(rank):
    model = DistributedDataParallel(nn.Linear(8, 2).to(rank), device_ids=[rank])
    F.mse_loss(model(torch.randn(4, 8)), torch.randn(4, 2).to(rank)).backward()

if __name__ == "__main__":
    step(1)
#: step

# === Remote calls run here
import os
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc

class Shard(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc = nn.Linear(8, width)

    def forward(self, x_rref):
        return self.fc(x_rref.to_here())

class Model(nn.Module):
    def __init__(self, workers):
        super().__init__()
        self.first = rpc.remote(workers[0], Shard, args=(8,))
        self.second = rpc.remote(workers[1], Shard, args=(2,))

    def forward(self, x):
        hidden = self.first.remote().forward(rpc.RRef(x))
        return self.second.rpc_async().forward(hidden).wait()

def main():
    rpc.init_rpc("master", rank=0, world_size=3)
    model = Model(["worker1", "worker2"])
    for x in [torch.randn(4, 8)]:
        with dist_autograd.context() as context:
            loss = model(x).sum()
            dist_autograd.backward(context, [loss])
    rpc.shutdown()

if __name__ == "__main__":
    main()
#: Model
#: Shard
#: main.step
