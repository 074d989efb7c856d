"""Follow the memory of a training program on fake tensors: each storage, from its allocation to its end.

The program runs as it is, with autograd and its optimizers, so that what they hold and release is what they would on a
device. Operations of a device may allocate a workspace inside, which nothing shows here.
"""

from __future__ import annotations

import ast
import gc
import math
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any, NamedTuple, get_args
from unittest.mock import patch

import torch
import torch.nn.functional as F
import torch.optim.optimizer as optimizers
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from fx_lsp.messages.targets import NO_TRAINING
from fx_lsp.model import MEMORY, Failure, MemoryPart, MemoryPhase, Span, StepMemory, TraceRequest, read_work
from fx_lsp.tracer.compat import FakeTensor, FakeTensorMode
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.program.data.loaders import FullBatches
from fx_lsp.tracer.program.effects import EffectBlocked
from fx_lsp.tracer.program.gpu.tensors import gpu_attention
from fx_lsp.tracer.program.load import empty_module
from fx_lsp.tracer.program.rewriting.script import rehearsed
from fx_lsp.tracer.program.time_limit import TimeUp
from fx_lsp.tracer.rehearsal.program_run import ProgramRun
from fx_lsp.tracer.source.provenance import Sources

STEPS = 2
"""The steps of an optimizer to run: its state exists from the first one on."""
SECONDS = 60.0
"""The seconds that a program may take."""
BLOCK_BYTES = 512
"""The unit of sizes on a GPU: `kMinBlockSize` of PyTorch's CUDACachingAllocator."""


def training_memory(request: TraceRequest, sources: Sources, mode: FakeTensorMode) -> StepMemory | Failure:
    """Run a program until its optimizer has stepped `STEPS` times, and return the peak of its memory, or why there is
    none.
    """
    run = ProgramRun(batches=FullBatches(int(read_work(request.work)[MEMORY] or 1)))
    module, memory = empty_module(request), LiveMemory(sources)
    run.turns.trains_on = lambda: not memory.is_over
    tree = rehearsed(ast.parse(request.source, request.file))
    vars(module).update(run.namespace())
    error: BaseException | None = None
    with run.surroundings(request.file, sources, request.source.splitlines(), mode), memory.watching():
        try:
            run.execute(tree, request.file, module, SECONDS)
        except (Exception, EffectBlocked, SystemExit, TimeUp) as stopped:
            error = stopped
    if (result := memory.result()) is not None:
        return replace(result, batch=run.batches.size if run.batches is not None else 0)
    reasons = [sentence(reason) for reason in (*run.absences.errors, error) if reason is not None]
    reason = reasons[0] if reasons else "an optimizer steps once" if memory.steps else "no optimizer steps"
    return NO_TRAINING.failure(file=os.path.basename(request.file), reason=reason)


@dataclass
class _LiveStorage:
    """Hold a storage with the times of its allocation and its end, and whether backward allocated it."""

    bytes: int
    device: str
    begin: int
    in_backward: bool
    end: float = math.inf
    part: MemoryPart | None = None


class _Peak(NamedTuple):
    bytes: int
    time: int
    phase: MemoryPhase
    span: Span | None


def _is_on_gpu(tensor: Any) -> bool:
    return isinstance(tensor, FakeTensor) and tensor.fake_device.type == "cuda"


def _dropout(tensor: Tensor, p: float, train: bool) -> Tensor:
    """Call the dropout of a GPU, which saves a mask of bools."""
    is_fused = _is_on_gpu(tensor) and train and 0 < p < 1
    return torch.native_dropout(tensor, p, train)[0] if is_fused else torch.dropout(tensor, p, train)


def _attention(query: Tensor, *args: Any, **options: Any) -> Tensor:
    """Call the attention of a GPU, also inside of PyTorch's own functions."""
    return (gpu_attention if _is_on_gpu(query) else scaled_dot_product_attention)(query, *args, **options)


_OF_GPU = (torch._VF, "dropout", _dropout), (F, "scaled_dot_product_attention", _attention)
"""Functions that PyTorch's own call, and that choose other operations on a GPU than C++ does where it sees none."""


_FUSED = "silu_backward", "mish_backward"
"""Operations with one kernel on a GPU that C++ computes in several where it sees none."""


def _whole(operation: Any) -> Callable[..., Tensor]:
    """Return a function that calls an operation as one, without its parts, and does not differentiate it."""

    def call(*args: Tensor) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return operation(*args)

    return call


def _step_of_scaler(self: Any, optimizer: Any, state: Any, *args: Any, **options: Any) -> Any:
    """Step as a `GradScaler` does if no gradient has overflowed."""
    return optimizer.step(*args, **options)


class LiveMemory(TorchDispatchMode):
    """Note all storages by the type of their device, until each optimizer has stepped `STEPS` times."""

    def __init__(self, sources: Sources) -> None:
        super().__init__()
        self._sources = sources
        self._storages: dict[int, tuple[weakref.ref[Any], _LiveStorage]] = {}
        self._all: list[_LiveStorage] = []
        self._time = 0
        self.steps = Counter[int]()
        self._live = Counter[str]()
        self._peaks: dict[str, _Peak] = {}
        self._phases = Counter[tuple[str, MemoryPhase]]()
        self._graph = -1
        self._backwards: list[int] = []
        self._lines: dict[int, Span] = {}
        self._is_stepping = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.is_over:
            self._note(result)
        return result

    @property
    def is_over(self) -> bool:
        """Return True once each optimizer that has stepped has done so `STEPS` times."""
        return min(self.steps.values(), default=0) >= STEPS

    def _note(self, result: Any) -> None:
        graph = torch._C._current_graph_task_id()
        if graph not in (-1, self._graph):
            self._graph = graph
            self._backwards.append(self._time)
        span = self._span(graph != -1)
        for tensor in tree_iter(result):
            if isinstance(tensor, FakeTensor):
                self._add(tensor.untyped_storage(), tensor.fake_device.type, graph != -1)
        phase: MemoryPhase = "optimizer" if self._is_stepping else "forward" if graph == -1 else "backward"
        for device, live in self._live.items():
            self._phases[device, phase] = max(self._phases[device, phase], live)
            if device not in self._peaks or live > self._peaks[device].bytes:
                self._peaks[device] = _Peak(live, self._time, phase, span)

    def _add(self, storage: Any, device: str, in_backward: bool) -> None:
        key = storage._cdata
        if key in self._storages:
            return
        self._time += 1
        noted = _LiveStorage(-(-storage.nbytes() // BLOCK_BYTES) * BLOCK_BYTES, device, self._time, in_backward)

        def ended(reference: Any) -> None:
            if key in self._storages and self._storages[key][0] is reference:
                del self._storages[key]
                self._time += 1
                noted.end = self._time
                self._live[device] -= noted.bytes

        self._storages[key] = weakref.ref(storage, ended), noted
        self._all.append(noted)
        self._live[device] += noted.bytes

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

        kernels: Any = torch.library.Library("aten", "IMPL")
        supported: Any = vars(optimizers).get("_foreach_supported_types", [])
        with ExitStack() as stack:
            stack.callback(optimizers.register_optimizer_step_pre_hook(before).remove)
            stack.callback(optimizers.register_optimizer_step_post_hook(after).remove)
            stack.callback(kernels._destroy)
            for name in _FUSED:
                kernels.impl(name, _whole(getattr(torch.ops.aten, name).default), "AutogradCUDA")
            for owner, name, replacement in _OF_GPU:
                stack.enter_context(patch.object(owner, name, replacement))
            stack.enter_context(patch.object(torch.amp.GradScaler, "_maybe_opt_step", _step_of_scaler))
            stack.enter_context(patch.object(optimizers, "_foreach_supported_types", [*supported, FakeTensor]))
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
        return StepMemory(**parts, phase=peak.phase, span=peak.span, device=device, phases=phases)

    def _use(self, storage: _LiveStorage) -> MemoryPart:
        """Return "saved" for a storage of forward that is alive when the next backward begins."""
        begin = next((time for time in self._backwards if time >= storage.begin), math.inf)
        return "saved" if not storage.in_backward and begin < storage.end else "temporary"
