"""Distributed code, on one process."""

from __future__ import annotations

from inline_snapshot import snapshot

HEAD = """\
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

"""


def collectives(traced, stage: str) -> list[str]:
    """The collectives of a stage with what they give and communicate."""
    nodes = traced.stage(stage).nodes
    return [f"{n.target.split('.')[1]}: {n.spec}, {n.comment}" for n in nodes if n.comment.startswith("communicates")]


def test_collectives_stand_in_forward_and_backward_with_their_bytes(trace):
    source = """
# fx: x=f32[4, 8], w=f32[8, 8]
def f(x, w):
    y = x @ w
    dist.all_reduce(y)
    return y / dist.get_world_size()
"""
    traced = trace(HEAD + source, "f")
    assert collectives(traced, "forward") == snapshot(["all_reduce: f32[4, 8], communicates 128 bytes"])
    assert collectives(traced, "backward") == snapshot(["all_reduce: f32[4, 8], communicates 128 bytes"])


def test_each_process_sends_its_part_on_a_ring(trace):
    """128 bytes of `x` in 4 processes: to reduce them for all takes two rounds of 3/4 of them, others one round."""
    source = """
from torch.distributed import _functional_collectives as functional

# fx: x=f32[4, 8]
def f(x):
    dist.init_process_group("nccl", rank=0, world_size=4)
    group = dist.group.WORLD
    x = functional.all_reduce(x, "sum", group)
    whole = functional.all_gather_tensor(x, 0, group)
    part = functional.reduce_scatter_tensor(whole, "sum", 0, group)
    other = functional.all_to_all_single(part, None, None, group)
    return functional.broadcast(other, 0, group)
"""
    traced = trace(HEAD + source, "f")
    nodes = [node for stage in traced.trace.stages[:1] for node in traced.stage(stage.name).nodes]
    sent = {node.target.split(".")[1]: node.sent_bytes for node in nodes if "c10d" in node.target}
    assert sent == snapshot(
        {
            "all_reduce": 192,
            "wait_tensor": 0,
            "all_gather_into_tensor": 384,
            "reduce_scatter_tensor": 384,
            "all_to_all_single": 96,
            "broadcast": 128,
        }
    )


def test_a_single_process_sends_nothing(trace):
    source = """
# fx: x=f32[4, 8]
def f(x):
    y = x * 2
    dist.all_reduce(y)
    return y
"""
    nodes = trace(HEAD + source, "f").stage("forward").nodes
    assert {node.sent_bytes for node in nodes if "c10d" in node.target} == {0}


def test_a_collective_takes_the_reduction_that_it_is_given(trace):
    source = """
# fx: x=f32[4, 8]
def f(x):
    y = x * 2
    dist.all_reduce(y, op=dist.ReduceOp.SUM)
    return y
"""
    assert collectives(trace(HEAD + source, "f"), "forward") == ["all_reduce: f32[4, 8], communicates 128 bytes"]


def test_a_mesh_has_as_many_processes_as_its_shape_says(trace):
    source = """
# fx: x=f32[4, 8]
def f(x):
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("dp", "tp"))
    return x * mesh["tp"].size() * dist.get_world_size()
"""
    assert [n.args[1] for n in trace(HEAD + source, "f").stage("forward").nodes if "mul" in n.target] == ["4", "8"]


TRAIN = """
def main():
    dist.init_process_group("nccl")
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    model = DistributedDataParallel(nn.Linear(8, 4).to(rank), device_ids=[rank])
    for _ in range(3):
        loss = model(torch.randn(4, 8, device="cuda")).sum()
        loss.backward()

main()
"""


def test_a_step_of_a_replicated_model(trace):
    traced = trace(HEAD + TRAIN, "main.step")
    assert [n.name for n in traced.stage("forward").nodes if n.op == "placeholder"] == snapshot(
        ["model_module_weight", "model_module_bias"]
    )


def test_a_distributed_parameter_has_its_name(trace):
    source = """
import torch
from torch import nn
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
"""
    inputs = [f"{n.name}: {n.spec}" for n in trace(source, "Net").stage("forward").nodes if n.op == "placeholder"]
    assert inputs == snapshot(["wide_weight: f32[16, 8]", "wide_weight_size: None", "x: f32[4, 8]"])


def test_a_replica_moves_what_it_is_given_to_its_device(trace):
    source = (
        HEAD
        + """
def step(rank):
    model = DistributedDataParallel(nn.Linear(8, 2).to(rank), device_ids=[rank])
    F.mse_loss(model(torch.randn(4, 8)), torch.randn(4, 2).to(rank)).backward()

if __name__ == "__main__":
    step(1)
"""
    )
    assert trace(source, "step").inputs() == snapshot(["rank: 1 · call site"])


def test_remote_calls_run_here(trace):
    source = (
        HEAD
        + """
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
"""
    )
    assert trace(source, "Model").inputs() == snapshot(
        ["init.workers[0]: 'worker1' · call site", "init.workers[1]: 'worker2' · call site", "x: f32[4, 8] · call site"]
    )
    assert trace(source, "Shard").inputs() == snapshot(
        ["init.width: 8 · call site", "x_rref: RemoteValue(…) · call site"]
    )
    assert trace(source, "main.step").trace.outputs == snapshot(("f32[]",))
