"""Measure the memory of a training program: as it is, with larger batches, and with what would reduce it."""

from __future__ import annotations

import ast
import copy
import gc
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from fx_lsp.messages.targets import NO_TRAINING
from fx_lsp.model import MEMORY, REDUCED, Failure, StepMemory, TraceRequest, read_work
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.program.data.loaders import FullBatches
from fx_lsp.tracer.program.effects import EffectBlocked
from fx_lsp.tracer.program.load import empty_module
from fx_lsp.tracer.program.rewriting.script import rehearsed
from fx_lsp.tracer.program.time_limit import TimeUp
from fx_lsp.tracer.rehearsal.live_memory import LiveMemory
from fx_lsp.tracer.rehearsal.program_run import ProgramRun
from fx_lsp.tracer.source.provenance import Sources

SECONDS = 60.0
"""The seconds that a program may take."""
LOOP_CALLS = 50_000
"""The number of operations on tensors after which a loop that does not train is left."""


Reduced = Callable[[], AbstractContextManager[list[str]]]
"""A context in which a program needs less memory; it yields what it applies to."""


def training_memory(request: TraceRequest, sources: Sources, mode: FakeTensorMode) -> StepMemory | Failure:
    """Run a program until its optimizers have stepped twice, and return the peak of its memory, or why there is none.

    Larger batches are those of its loader; without one, a number of the code is the batch if models get as many more
    rows with a larger number, and no more parameters.
    """
    work = read_work(request.work)
    factor, program = int(work[MEMORY] or 1), _TrainingProgram(request, sources, mode)
    reduced = _REDUCTIONS.get(work.get(REDUCED, ""), _unreduced)
    run = program.run(ast.parse(request.source, request.file), factor, reduced)
    if isinstance(run, Failure) or factor == 1 or run.memory.batch:
        return run if isinstance(run, Failure) else run.memory
    end = time.monotonic() + SECONDS / 2
    for tree, batch in _larger(ast.parse(request.source, request.file), run.rows, factor):
        larger = program.run(tree, 1, _unreduced)
        is_parameter = isinstance(larger, Failure) or larger.memory.parameters != run.memory.parameters
        if not isinstance(larger, Failure) and not is_parameter and batch in larger.rows:
            return replace(larger.memory, batch=batch)
        if time.monotonic() > end:
            break
    return run.memory


@dataclass(frozen=True)
class _Measured:
    memory: StepMemory
    rows: Mapping[int, None]


@dataclass(frozen=True)
class _TrainingProgram:
    request: TraceRequest
    sources: Sources
    mode: FakeTensorMode

    def run(self, tree: ast.Module, factor: int, reduced: Reduced) -> _Measured | Failure:
        """Run a program with batches so many times as large, and with a reduction of its memory."""
        module, memory = empty_module(self.request), LiveMemory(self.sources)
        batches = FullBatches(factor, trains_on=lambda: not memory.is_over)
        run = ProgramRun(batches=batches)
        run.turns.trains_on, run.turns.loop_calls = batches.trains_on, LOOP_CALLS
        vars(module).update(run.namespace())
        error: BaseException | None = None
        lines = self.request.source.splitlines()
        with run.surroundings(self.request.file, self.sources, lines, self.mode), memory.watching(), reduced() as to:
            try:
                run.execute(rehearsed(tree), self.request.file, module, SECONDS)
            except (Exception, EffectBlocked, SystemExit, TimeUp) as stopped:
                error = stopped
        if (result := memory.result()) is not None:
            for file, line in run.turns.left:
                notes().add(f"the loop at {os.path.basename(file)}:{line} was left before its end")
            return _Measured(replace(result, batch=batches.size, reduced=to[0] if to else ""), memory.rows)
        reasons = [sentence(reason) for reason in (*run.absences.errors, error) if reason is not None]
        reason = reasons[0] if reasons else "an optimizer steps once" if memory.steps else "no optimizer steps"
        return NO_TRAINING.failure(file=os.path.basename(self.request.file), reason=reason)


def _larger(tree: ast.Module, rows: Mapping[int, None], factor: int) -> Iterator[tuple[ast.Module, int]]:
    """Yield a program once for each of its numbers that may be the batch, so many times as large, with that number."""
    for node in (node for node in ast.walk(tree) if isinstance(node, ast.Constant)):
        if type(before := node.value) is int and before in rows:
            node.value = larger = before * factor
            yield copy.deepcopy(tree), larger
            node.value = before


def _unreduced() -> AbstractContextManager[list[str]]:
    return nullcontext([])


@contextmanager
def _checkpointed() -> Generator[list[str], None, None]:
    """Inside, each of the repeated modules with the most parameters is checkpointed; yield the name of its class."""
    names: list[str] = []

    def called(module: nn.Module, args: Any) -> None:
        if not names and torch.is_grad_enabled():
            blocks = max(_repeated(), key=_parameters, default=[])
            names.append(type(blocks[0]).__name__ if blocks else "")
            for block in blocks:
                block.forward = partial(checkpoint, block.forward, use_reentrant=False)

    handle = nn.modules.module.register_module_forward_pre_hook(called)
    try:
        yield names
    finally:
        handle.remove()


def _repeated() -> Iterator[list[nn.Module]]:
    """Yield the modules of one class in each list of modules that has several."""
    for modules in (value for value in gc.get_objects() if issubclass(type(value), (nn.ModuleList, nn.Sequential))):
        for kind in {type(module) for module in modules}:
            blocks = [module for module in modules if type(module) is kind]
            if len(blocks) > 1 and any(True for _ in blocks[0].children()):
                yield blocks


def _parameters(modules: list[nn.Module]) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@contextmanager
def _fused() -> Generator[list[str], None, None]:
    """Inside, optimizers that have one kernel for all that they do use it; yield the name of the first one's class."""
    names: list[str] = []
    original = Optimizer.__init__

    def init(self: Optimizer, params: Any, defaults: dict[str, Any]) -> None:
        if "fused" in defaults and not defaults["fused"]:
            names.append(type(self).__name__)
            defaults = {**defaults, "fused": True, "foreach": False}
        original(self, params, defaults)

    with patch.object(Optimizer, "__init__", init):
        yield names


@contextmanager
def _in_bfloat16() -> Generator[list[str], None, None]:
    """Inside, models run under autocast to bfloat16, if they are not yet; yield the names of their classes."""
    names: list[str] = []
    running: list[Any] = []

    def called(module: nn.Module, args: Any) -> None:
        is_outermost = not running and not torch.is_autocast_enabled("cuda")
        running.append(torch.autocast("cuda", torch.bfloat16) if is_outermost else nullcontext())
        running[-1].__enter__()
        if is_outermost:
            names.append(type(module).__name__)

    def returned(module: nn.Module, args: Any, result: Any) -> None:
        running.pop().__exit__(None, None, None)

    hooks = nn.modules.module
    handles = (
        hooks.register_module_forward_pre_hook(called),
        hooks.register_module_forward_hook(returned, always_call=True),
    )
    try:
        yield names
    finally:
        for handle in handles:
            handle.remove()


_REDUCTIONS: Mapping[str, Reduced] = {
    "checkpoint": _checkpointed,
    "bfloat16": _in_bfloat16,
    "fused": _fused,
}
