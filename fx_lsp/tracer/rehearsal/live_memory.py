"""Follow the memory of a training program on fake tensors: each storage, from its allocation to its end.

The program runs as it is, with autograd and its optimizers, so that what they hold and release is what they would on a
device. Operations of a device may allocate a workspace inside: that of cuBLAS is counted, others are not.
"""

from __future__ import annotations

import gc
import math
import sys
import weakref
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple, get_args

import torch
import torch.optim.optimizer as optimizers
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from fx_lsp.model import MemoryPart, MemoryPhase, Span, StepMemory
from fx_lsp.tracer.compat import DATA_DEPENDENT, FakeTensor
from fx_lsp.tracer.rehearsal.caching_allocator import BLOCK_BYTES, CachingAllocator, MemoryBlock, round_up
from fx_lsp.tracer.rehearsal.gpu_kernels import is_on_gpu, kernels_of_gpu
from fx_lsp.tracer.rehearsal.gpu_workspaces import CUBLAS_BYTES, OF_CUBLAS, reduction_bytes
from fx_lsp.tracer.run.values.numbers import NUMBER
from fx_lsp.tracer.source.provenance import Sources

STEPS = 2
"""The steps of an optimizer to run: its state exists from the first one on."""
_NUMBER = torch.ops.aten._local_scalar_dense.default


@dataclass
class _LiveStorage:
    """Hold a storage with the times of its allocation and its end, and whether backward allocated it."""

    bytes: int
    device: str
    begin: int
    in_backward: bool
    block: MemoryBlock
    end: float = math.inf
    part: MemoryPart | None = None


class _Peak(NamedTuple):
    bytes: int
    time: int
    phase: MemoryPhase
    span: Span | None


class LiveMemory(TorchDispatchMode):
    """Note all storages by the type of their device, until each optimizer has stepped `STEPS` times.

    `flops` are those of all operations; `rows` are the first sizes of the tensors that models are called with to be
    trained, one of which is the batch.
    """

    def __init__(self, sources: Sources) -> None:
        super().__init__()
        self._sources = sources
        self._storages: dict[int, tuple[weakref.ref[Any], _LiveStorage]] = {}
        self._all: list[_LiveStorage] = []
        self._time = self.flops = 0
        self.steps = Counter[int]()
        self.rows: dict[int, None] = {}
        self._allocators = defaultdict[str, CachingAllocator](CachingAllocator)
        self._workspaces: set[bool] = set()
        self._live = Counter[str]()
        self._peaks: dict[str, _Peak] = {}
        self._phases = Counter[tuple[str, MemoryPhase]]()
        self._graph = -1
        self._backwards: list[int] = []
        self._lines: dict[int, Span] = {}
        self._is_stepping = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        options = kwargs or {}
        try:
            result = func(*args, **options)
        except DATA_DEPENDENT:
            if func is not _NUMBER:
                raise
            result = NUMBER if args[0].is_floating_point() else args[0].dtype is not torch.bool
        if not self.is_over:
            self._note(func.overloadpacket, args, options, result)
        return result

    @property
    def is_over(self) -> bool:
        """Return True once each optimizer that has stepped has done so `STEPS` times."""
        return min(self.steps.values(), default=0) >= STEPS

    def _note(self, operation: Any, args: Any, options: Any, result: Any) -> None:
        """Note what an operation computes and allocates: its results, and what it needs inside."""
        graph = torch._C._current_graph_task_id()
        if graph not in (-1, self._graph):
            self._graph = graph
            self._backwards.append(self._time)
        in_backward = graph != -1
        if operation in flop_registry:
            self.flops += flop_registry[operation](*args, **options, out_val=result)
        if operation in OF_CUBLAS and is_on_gpu(result) and in_backward not in self._workspaces:
            self._workspaces.add(in_backward)
            self._allocated(CUBLAS_BYTES, "cuda", in_backward).part = "workspaces"
        for tensor in tree_iter(result):
            if isinstance(tensor, FakeTensor):
                self._add(tensor.untyped_storage(), tensor.fake_device.type, in_backward)
        inside = reduction_bytes(operation, args, result) if is_on_gpu(result) else 0
        workspace = self._allocated(inside, "cuda", in_backward) if inside else None
        phase: MemoryPhase = "optimizer" if self._is_stepping else "backward" if in_backward else "forward"
        span = self._span(in_backward)
        for device, live in self._live.items():
            self._phases[device, phase] = max(self._phases[device, phase], live)
            if device not in self._peaks or live > self._peaks[device].bytes:
                self._peaks[device] = _Peak(live, self._time, phase, span)
        if workspace is not None:
            self._release(workspace)

    def _add(self, storage: Any, device: str, in_backward: bool) -> None:
        key = storage._cdata
        if key in self._storages:
            return
        noted = self._allocated(storage.nbytes(), device, in_backward)

        def ended(reference: Any) -> None:
            if key in self._storages and self._storages[key][0] is reference:
                del self._storages[key]
                self._release(noted)

        self._storages[key] = weakref.ref(storage, ended), noted

    def _allocated(self, size: int, device: str, in_backward: bool) -> _LiveStorage:
        """Note that a device allocates so many bytes now."""
        self._time += 1
        block = self._allocators[device].allocate(size)
        noted = _LiveStorage(round_up(size, BLOCK_BYTES), device, self._time, in_backward, block)
        self._all.append(noted)
        self._live[device] += noted.bytes
        return noted

    def _release(self, noted: _LiveStorage) -> None:
        self._time += 1
        noted.end = self._time
        self._live[noted.device] -= noted.bytes
        if not self.is_over:
            self._allocators[noted.device].free(noted.block)

    def _span(self, in_backward: bool) -> Span | None:
        """Return the line of the user's code that runs, or in backward that of the operation in forward."""
        if in_backward:
            node: Any = torch._C._current_autograd_node()
            return None if node is None else self._lines.get(node._sequence_nr())
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and self._sources.rank(frame.f_code.co_filename) != 0:
            frame = frame.f_back
        if frame is None:
            return None
        span = Span(frame.f_code.co_filename, frame.f_lineno, 0, frame.f_lineno, 0)
        self._lines[torch.autograd._get_sequence_nr() - 1] = span  # the node of this operation has the last number
        return span

    def _tag(self, tensors: Iterable[Any], part: MemoryPart) -> None:
        for tensor in tensors:
            if isinstance(tensor, Tensor) and not tensor.is_sparse:
                entry = self._storages.get(tensor.untyped_storage()._cdata)
                if entry is not None and (entry[1].part is None or part == "parameters"):
                    entry[1].part = part

    @contextmanager
    def watching(self) -> Generator[None, None, None]:
        """Inside, storages and the steps of optimizers are noted, and optimizers choose kernels as on the device."""

        def before(optimizer: Any, *_: Any) -> None:
            self._is_stepping = True
            if not self.is_over:
                owned = [p for group in optimizer.param_groups for p in group["params"]]
                modules = [o for o in gc.get_objects() if issubclass(type(o), nn.Module)]
                held = (t for m in modules for t in (*m.parameters(recurse=False), *m.buffers(recurse=False)))
                self._tag((*owned, *held), "parameters")
                self._tag((p.grad for p in owned), "gradients")

        def after(optimizer: Any, *_: Any) -> None:
            self._is_stepping = False
            self._tag(tree_iter(list(optimizer.state.values())), "optimizer")
            trains = any(p.grad is not None for group in optimizer.param_groups for p in group["params"])
            self.steps[id(optimizer)] += trains

        depth, told = 0, 0

        def called(module: nn.Module, args: Any) -> None:
            nonlocal depth, told
            depth += 1
            if torch.is_grad_enabled() and not (told or self.is_over):
                sizes = [tensor.shape[0] for tensor in tree_iter(args) if isinstance(tensor, Tensor) and tensor.dim()]
                self.rows |= dict.fromkeys(sizes)
                told = depth if sizes else 0

        def returned(module: nn.Module, args: Any, result: Any) -> None:
            nonlocal depth, told
            depth -= 1
            told = told if depth else 0

        with ExitStack() as stack:
            hooks = nn.modules.module
            stack.callback(hooks.register_module_forward_pre_hook(called).remove)
            stack.callback(hooks.register_module_forward_hook(returned, always_call=True).remove)
            stack.callback(optimizers.register_optimizer_step_pre_hook(before).remove)
            stack.callback(optimizers.register_optimizer_step_post_hook(after).remove)
            stack.enter_context(kernels_of_gpu())
            stack.enter_context(self)
            yield

    def result(self) -> StepMemory | None:
        """Return the peak with its parts, on the device of the parameters; None if the program stopped before."""
        if not self.is_over:
            return None
        trained = Counter[str]()
        for storage in self._all:
            trained[storage.device] += storage.bytes if storage.part == "parameters" else 0
        device = max(trained, key=lambda kind: trained[kind])
        peak = self._peaks[device]
        parts: dict[MemoryPart, int] = dict.fromkeys(get_args(MemoryPart), 0)
        for storage in self._all:
            if storage.device == device and storage.begin <= peak.time < storage.end:
                parts[storage.part or self._use(storage)] += storage.bytes
        phases = tuple(self._phases[device, phase] for phase in get_args(MemoryPhase))
        reserved = self._allocators[device].reserved
        return StepMemory(
            **parts,
            phase=peak.phase,
            span=peak.span,
            device=device,
            phases=phases,
            reserved=reserved,
            flops=self.flops,
        )

    def _use(self, storage: _LiveStorage) -> MemoryPart:
        """Return "saved" for a storage of forward that is alive when the next backward begins."""
        begin = next((time for time in self._backwards if time >= storage.begin), math.inf)
        return "saved" if not storage.in_backward and begin < storage.end else "temporary"
