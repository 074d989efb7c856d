"""Run a whole program on fake tensors: missing data is represented by placeholders, and training loops are short."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.optim import Optimizer

from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.inputs.evidence.command_line import CommandLine, started_as
from fx_lsp.tracer.program.absences import Absences, AbsentError
from fx_lsp.tracer.program.data.loaders import FullBatches, first_and_last, one_batch_each
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.program.load import codes_of
from fx_lsp.tracer.program.rewriting.script import AGAIN, TRYING, TURNS, Turns
from fx_lsp.tracer.program.time_limit import time_limit
from fx_lsp.tracer.run.values.decisions import Decisions, decided_by
from fx_lsp.tracer.source.provenance import Sources

SECONDS = 10.0
"""The time that a program may take."""


@dataclass
class ProgramRun:
    """One run of a program: what was absent, how often its loops turned, and its command line.

    `operations` counts operations on tensors that got some. `caught` are the exceptions that the code itself catches
    where it is: a function for each `try` block. `failing` is the number of blocks around it that are meant to fail.
    A run with full `batches` has optimizers that compute all that they do.
    """

    absences: Absences = field(default_factory=Absences)
    turns: Turns = field(default_factory=Turns)
    line: CommandLine = field(default_factory=CommandLine)
    operations: int = 0
    failing: int = 0
    batches: FullBatches | None = None
    caught: list[Callable[[], Any]] = field(default_factory=list[Callable[[], Any]])

    def namespace(self) -> dict[str, Any]:
        """Return the helpers that the `rehearsed` code of the program calls, by name."""
        names = self.absences.namespace(self.absent)
        return {**names, TURNS: self.turns.through, AGAIN: self.turns.again, TRYING: self._trying}

    @contextmanager
    def _trying(
        self, kinds: Callable[[], Any] = lambda: BaseException, is_to_fail: bool = False
    ) -> Generator[None, None, None]:
        self.caught.append(kinds)
        self.failing += is_to_fail
        try:
            yield
        finally:
            self.caught.pop()
            self.failing -= is_to_fail

    def _catches(self, error: BaseException) -> bool:
        """Return True if the code itself catches an error where it is raised."""
        try:
            return any(isinstance(error, kinds()) for kinds in self.caught)
        except Exception:
            return True  # the kinds are those of a package that is missing

    def absent(self, error: BaseException, imported: bool) -> Any:
        """Return a placeholder for the result of a statement that raised an error; raise the error again if the code
        catches it or ends itself."""
        is_own = not isinstance(error, AbsentError) and self._catches(error)
        is_check = _is_check(error) and not self.absences.numbers  # with guessed numbers a check says nothing
        if isinstance(error, SystemExit) or is_own or is_check:
            raise error
        self.examine(error)
        self.turns.absences += 1
        return self.absences.record(error, imported)

    def examine(self, error: BaseException) -> None:
        """Examine an error before a placeholder replaces the result. An exception raised here ends the run."""

    @contextmanager
    def surroundings(
        self, file: str, sources: Sources, lines: list[str], mode: FakeTensorMode
    ) -> Generator[None, None, None]:
        """Inside, the process is as a program `file` finds it that is run on fake tensors."""
        with ExitStack() as stack:
            stack.enter_context(self._counting(mode))
            stack.enter_context(mode)
            stack.enter_context(decided_by(Decisions(sources, lines, is_rehearsal=True)))
            stack.enter_context(forbid_effects())
            self.line = stack.enter_context(started_as(file))
            stack.enter_context(one_batch_each(self.batches or first_and_last))
            stack.enter_context(_plain_steps() if self.batches is None else nullcontext())
            stack.enter_context(_no_remote_calls())
            stack.enter_context(self.turns.counting())
            yield

    @contextmanager
    def _counting(self, mode: FakeTensorMode) -> Generator[None, None, None]:
        """Inside, operations on tensors are counted."""
        run: Callable[..., Any] = mode.dispatch

        def dispatch(*args: Any, **options: Any) -> Any:
            self.turns.calls += 1
            self.operations += bool(args[1])  # the types of the tensors that it gets
            return run(*args, **options)

        with patch.dict(mode.__dict__, {"dispatch": dispatch}):
            yield

    def execute(self, tree: ast.Module, file: str, module: ModuleType, seconds: float = SECONDS) -> None:
        """Run the statements of a program, which is `rehearsed`, in a module, within so many seconds."""
        with time_limit(seconds):
            for code, imports in codes_of(tree, file):
                exec(code, module.__dict__)
                if imports:
                    self.line.imported()
                self.proceed(module)

    def proceed(self, module: ModuleType) -> None:
        """Proceed to the next statement of the program."""


def _is_check(error: BaseException) -> bool:
    """Return True if an assertion of the statement itself does not hold."""
    traceback = error.__traceback__
    return isinstance(error, AssertionError) and traceback is not None and traceback.tb_next is None


@contextmanager
def _plain_steps() -> Generator[None, None, None]:
    """Inside, PyTorch's optimizers change each parameter by its gradient, in place, and compute no more."""
    with ExitStack() as stack:
        kinds = [kind for kind in vars(torch.optim).values() if isinstance(kind, type) and issubclass(kind, Optimizer)]
        for kind in kinds:
            if "step" in vars(kind) and kind is not Optimizer:
                stack.enter_context(patch.object(kind, "step", _plain_step))
        yield


@contextmanager
def _no_remote_calls() -> Generator[None, None, None]:
    """Inside, there are no other processes that a program could wait for.

    A target's remote calls run here; what a whole program's do to each other at the same time would not be what they
    do.
    """
    if not dist.is_available():
        yield
        return
    rpc: Any = importlib.import_module("torch.distributed.rpc")

    def init_rpc(*args: Any, **kwargs: Any) -> Any:
        raise AbsentError(NotImplementedError("the other processes are missing"))

    with patch.object(rpc, "init_rpc", init_rpc):
        yield


def _plain_step(self: Optimizer, closure: Callable[[], Any] | None = None) -> Any:
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    with torch.no_grad():
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not parameter.grad.is_sparse:
                    parameter.add_(parameter.grad)
    return loss
