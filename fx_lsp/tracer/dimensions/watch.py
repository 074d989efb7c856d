"""Observe a run on symbols: the variables of each run of a function, and the sizes of its results."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from fx_lsp.model import Span
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.dimensions.sources import Place
from fx_lsp.tracer.dimensions.symbolic import Sizes, SymbolicCall, expression_of, sizes_of
from fx_lsp.tracer.inputs.solve.path_conditions import PathConditions, symbols_are_integers
from fx_lsp.tracer.run.call import RUN_CODE, Call, tensors_in
from fx_lsp.tracer.run.conditions import with_shape_env
from fx_lsp.tracer.run.observation import Run, Statements
from fx_lsp.tracer.run.operations.recurrent import OneOperation
from fx_lsp.tracer.run.repeated_modules import repeated_modules_skipped
from fx_lsp.tracer.run.torch_calls import FailedCall
from fx_lsp.tracer.source.provenance import METADATA, Sources

MAX_SECONDS = 2.0
"""The most seconds of processor time of a run."""


@dataclass(eq=False)
class FunctionRun:
    """Hold one run of a function, which `outer` called: the values of its variables, None for changed ones, and the
    sizes of observed values. `requested` are sizes of results, each with the size that the code requested.
    """

    outer: FunctionRun | None = None
    variables: dict[str, Any] = field(default_factory=dict[str, Any])
    values: list[tuple[Place, Sizes]] = field(default_factory=list["tuple[Place, Sizes]"])
    ends: dict[Place, list[Sizes]] = field(default_factory=dict[Place, "list[Sizes]"])
    operations: set[tuple[Span, Sizes]] = field(default_factory=set["tuple[Span, Sizes]"])
    requested: list[tuple[Any, Any]] = field(default_factory=list["tuple[Any, Any]"])

    def bind(self, name: str, size: Any) -> None:
        """Record the value of a variable; one that changes later names nothing."""
        self.variables[name] = size if self.variables.get(name, size) == size else None

    def note(self, place: Place, value: Any) -> None:
        """Record the sizes of the tensors of a value."""
        self.values += ((place, sizes_of(tensor)) for _, tensor in tensors_in(value, "", 3))

    def note_end(self, place: Place, value: Any) -> None:
        """Record a value in place of the previous one: the torch calls of a library end in the value of the
        expression.
        """
        self.ends[place] = [sizes_of(tensor) for _, tensor in tensors_in(value, "", 3)]

    def seen(self) -> Iterator[tuple[Place, Sizes]]:
        """Yield the place and sizes of every observed tensor."""
        yield from self.values
        yield from ((place, sizes) for place, several in self.ends.items() for sizes in several)

    def note_requested(self, args: tuple[Any, ...], result: Any) -> None:
        """Record the sizes of a result and the requested ones: those of `x.view(B, T, H, D)`."""
        told = [size for item in args[1:] for size in (item if isinstance(item, (list, tuple)) else [item])]
        if isinstance(result, torch.Tensor) and len(told) == result.dim():
            pairs = zip(sizes_of(result), told, strict=True)
            self.requested += ((size, expression_of(to)) for size, to in pairs if isinstance(to, torch.SymInt))


@dataclass
class SymbolicRun:
    """Hold the results of a run on symbols, with `calls` torch calls; `symbols` are those of its call."""

    symbols: SymbolicCall
    scopes: list[FunctionRun]
    calls: int


def observed(call: Call, statements: Statements, sources: Sources, mode: FakeTensorMode, numbers: bool) -> SymbolicRun:
    """Run a call on symbols as far as possible; with `numbers`, those of modules and arguments are symbols as well."""
    run = Run()
    symbols = SymbolicCall(PathConditions(run, sources, chains=True), numbers)
    scopes = _FunctionRuns(sources, statements)
    previous = sys.gettrace()
    with with_shape_env(mode, symbols.conditions), mode, symbols_are_integers(), repeated_modules_skipped(run):
        try:
            with symbols.in_modules(call.modules.values()), OneOperation():
                symbolic = symbols.call(call)
                with _TorchCalls(sources, scopes, run), _Operations(scopes):
                    sys.settrace(scopes.enter)
                    symbolic.run()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # the results before an exception still count
            run.error = error
        finally:
            sys.settrace(previous)
    return SymbolicRun(symbols, scopes.all, run.calls)


_SHAPED = frozenset({"view", "reshape", "expand"})
"""Calls that receive every size of their result."""


class _OverTime(BaseException):
    """The run has exceeded its time limit."""


class _FunctionRuns:
    """Track the runs of functions of a file, as a Python trace function."""

    def __init__(self, sources: Sources, statements: Statements) -> None:
        self._sources, self._statements = sources, statements
        self._by_frame: dict[int, FunctionRun] = {}
        self.all: list[FunctionRun] = []
        self.calling: tuple[FunctionRun, Span] | None = None

    def of(self, frame: FrameType | None) -> FunctionRun | None:
        """Return the run of the file's function that a frame is in or was called by, or None."""
        while frame is not None and id(frame) not in self._by_frame:
            frame = None if frame.f_code is RUN_CODE else frame.f_back
        return None if frame is None else self._by_frame[id(frame)]

    def enter(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        """Handle an event of `sys.settrace`."""
        code = frame.f_code
        if event != "call" or code.co_filename != self._sources.file:
            return None
        outer = self.of(frame.f_back)
        is_part = code.co_name.startswith("<") and outer is not None  # a lambda or a comprehension
        scope = outer if is_part and outer is not None else FunctionRun(outer)
        if not is_part:
            self.all.append(scope)
        self._by_frame[id(frame)] = scope
        held: dict[str, int] = {}
        self._note_changes(frame, scope, held, lambda name: self._statements.function(code.co_firstlineno))
        last, failed = frame.f_lineno, False

        def step(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
            nonlocal last, failed
            if event in ("line", "return"):
                line = last
                self._note_changes(frame, scope, held, lambda name: self._statements.binding(line, name))
            if event == "line":
                last, failed = frame.f_lineno, False
            elif event == "exception":
                failed = True
            elif event == "return":
                span = self._statements.returning(last)
                if span is not None and not failed:
                    scope.note((span, "return"), arg)
                self._by_frame.pop(id(frame), None)
            return step

        return step

    @staticmethod
    def _note_changes(
        frame: FrameType, scope: FunctionRun, held: dict[str, int], place: Callable[[str], Span | None]
    ) -> None:
        for name, value in frame.f_locals.items():
            if held.get(name) == id(value):
                continue
            held[name] = id(value)
            if isinstance(value, (int, torch.SymInt)):
                scope.bind(name, expression_of(value))
            elif (span := place(name)) is not None:
                scope.note((span, name), value)


class _TorchCalls(TorchFunctionMode):
    """Count torch calls, and record the result of each expression."""

    def __init__(self, sources: Sources, scopes: _FunctionRuns, run: Run) -> None:
        super().__init__()
        self._sources, self._scopes, self._run = sources, scopes, run
        self._deadline = time.process_time() + MAX_SECONDS

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA:
            return func(*args, **(kwargs or {}))
        if time.process_time() > self._deadline:
            raise _OverTime
        scopes, frame = self._scopes, sys._getframe(1)
        scope, chain = scopes.of(frame), self._sources.chain(frame, RUN_CODE)
        tracer, outer = sys.gettrace(), scopes.calling
        scopes.calling = (scope, chain[0]) if scope is not None and chain else None
        sys.settrace(None)
        self._run.calling = FailedCall(func, args, kwargs or {}, ())
        try:
            result = func(*args, **(kwargs or {}))
        finally:
            self._run.calling = None
            sys.settrace(tracer)
            scopes.calling = outer
        self._run.calls += 1
        if scope is not None and chain:
            own = frame.f_code.co_filename == chain[0].file
            (scope.note if own else scope.note_end)((chain[0], ""), result)
            if getattr(func, "__name__", "") in _SHAPED:
                scope.note_requested(args, result)
        return result


class _Operations(TorchDispatchMode):
    """Record the sizes in the operations of each torch call."""

    def __init__(self, scopes: _FunctionRuns) -> None:
        super().__init__()
        self._scopes = scopes

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._scopes.calling is not None:
            scope, span = self._scopes.calling
            several = [*args, *(kwargs or {}).values(), *(result if isinstance(result, (list, tuple)) else [result])]
            for tensor in (t for item in several for t in (item if isinstance(item, (list, tuple)) else [item])):
                if isinstance(tensor, torch.Tensor):
                    scope.operations.add((span, sizes_of(tensor)))
        return result
