"""Simulate the processes that distributed code expects: a group of the requested size, whose collectives do nothing."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._pytree import tree_map_only

from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.program.processes.environment import LAUNCHED, launch

_NAMES = rf"['\"](?:{'|'.join(LAUNCHED)})['\"]"
_DEMANDS = re.compile(rf"environ\[\s*{_NAMES}\s*\]")
_ASKS = re.compile(rf"get(?:env)?\(\s*{_NAMES}|{_NAMES}\s+(?:not\s+)?in\s")


def start_group(ranks: int = 1, rank: int = 0) -> bool:
    """Set up a group of that many processes; return False if this PyTorch has none without a network."""
    if _STARTING:
        return False
    _STARTING.append(ranks)
    with suppress(Exception):
        from torch.testing._internal.distributed.fake_pg import FakeStore

        if dist.is_initialized():
            dist.destroy_process_group()
        _INIT[0]("fake", store=FakeStore(), rank=rank, world_size=ranks)
    _STARTING.clear()
    return dist.is_initialized()


_STARTING: list[int] = []
"""The number of processes of the group being set up, which PyTorch queries meanwhile."""
_INIT: list[Callable[..., Any]] = [getattr(dist, "init_process_group", lambda *args, **options: None)]


def _functional_collectives() -> Mapping[Callable[..., Any], Callable[..., Any]]:
    """Return the replacement of each collective in graphs, as in `torch.compile`; empty in another PyTorch."""
    with suppress(ImportError):
        from torch.distributed import _functional_collectives

        return getattr(_functional_collectives, "traceable_collective_remaps", {})
    return {}


def _collective(legacy: Callable[..., Any], functional: Callable[..., Any]) -> Callable[..., Any]:
    """Return a collective that is the functional one while it is traced; an asynchronous one stays."""
    from torch.distributed import _functional_collectives as functional_collectives

    tracing: Callable[[], bool] = functional_collectives._are_we_tracing
    names: Mapping[Any, str] = getattr(functional_collectives, "REDUCE_OP_TO_STR", {})

    def named(argument: Any) -> Any:
        return (
            names.get(argument, argument) if isinstance(argument, dist.ReduceOp.RedOpType | dist.ReduceOp) else argument
        )

    @wraps(legacy)
    def collective(*args: Any, **options: Any) -> Any:
        if options.get("async_op") or not tracing():
            return legacy(*args, **options)
        try:
            return functional(*map(named, args), **{name: named(option) for name, option in options.items()})
        except AssertionError:  # it has no functional form with these arguments
            return legacy(*args, **options)

    return collective


@contextmanager
def _replicas() -> Generator[None, None, None]:
    """Make a model that is to be replicated a single replica inside.

    Averaging of gradients works outside of graphs, on memory that fake tensors do not have.
    """
    from torch.nn.parallel import DistributedDataParallel as Replicated

    def init(self: Any, module: nn.Module, device_ids: Any = None, *args: Any, **options: Any) -> None:
        if all(type(parameter) is nn.Parameter for parameter in module.parameters()):
            original(self, module, device_ids, *args, **options)
            return
        nn.Module.__init__(self)
        self.module, self.require_backward_grad_sync, self.device_ids = module, True, device_ids
        self.device = next(module.parameters()).device
        notes().add("DistributedDataParallel averages the gradients over all processes, outside of these graphs")

    def forward(self: Any, *inputs: Any, **options: Any) -> Any:
        if hasattr(self, "reducer"):
            return run(self, *inputs, **options)
        if self.device_ids:  # a replica moves its inputs to its device
            inputs, options = tree_map_only(torch.Tensor, lambda tensor: tensor.to(self.device), (inputs, options))
        return self.module(*inputs, **options)

    original, run = Replicated.__init__, Replicated.forward
    with mock.patch.object(Replicated, "__init__", init), mock.patch.object(Replicated, "forward", forward):
        yield


@contextmanager
def fake_processes(program: str) -> Generator[None, None, None]:
    """Allow a program inside to set up its processes and meshes of them; without a set-up it is a single process.

    A `program` that reads a launcher's variables, without checking for them, is assumed to have been launched.
    """
    if not dist.is_available():
        yield
        return
    if _DEMANDS.search(program) and not _ASKS.search(program):
        launch()
    from torch.distributed import device_mesh, distributed_c10d

    default_group, make_mesh = distributed_c10d._get_default_group, device_mesh.init_device_mesh
    world = type(dist.group).__dict__["WORLD"]

    def init(backend: Any = None, init_method: Any = None, timeout: Any = None, *args: Any, **options: Any) -> None:
        sizes = dict(zip(("world_size", "rank"), args, strict=False)) | options
        ranks, rank = int(sizes.get("world_size", -1)), int(sizes.get("rank", -1))
        start_group(int(os.environ.get("WORLD_SIZE", "1")) if ranks < 1 else ranks, max(rank, 0))

    def group() -> Any:
        if not dist.is_initialized():
            start_group()
        return default_group()

    def mesh(device_type: str, mesh_shape: tuple[int, ...], *args: Any, **options: Any) -> Any:
        ranks = math.prod(mesh_shape)
        if not dist.is_initialized() or dist.get_world_size() < ranks:
            start_group(ranks)
        return make_mesh(device_type, mesh_shape, *args, **options)

    def world_group(meta: type) -> Any:
        if meta is dist.group:
            group()
        return world.__get__(meta, type(meta))

    with ExitStack() as stack:
        for owner, name, value in (
            (dist, "init_process_group", init),
            (distributed_c10d, "init_process_group", init),
            (device_mesh, "init_device_mesh", mesh),
            (dist, "init_device_mesh", mesh),
            (type(dist.group), "WORLD", property(world_group, world.__set__)),
        ):
            if hasattr(owner, name) or owner is type(dist.group):
                stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(_replicas())
        for legacy, functional in _functional_collectives().items():
            for module in (dist, distributed_c10d):
                if getattr(module, legacy.__name__, None) is legacy:
                    collective = _collective(legacy, functional)
                    stack.enter_context(mock.patch.object(module, legacy.__name__, collective))
        for module in list(sys.modules.values()):  # some have it under another name
            if getattr(module, "__dict__", {}).get("_get_default_group") is default_group:
                stack.enter_context(mock.patch.object(module, "_get_default_group", group))
        yield
