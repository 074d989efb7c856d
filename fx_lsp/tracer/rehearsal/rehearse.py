"""A script run to its end on fake tensors, with real autograd: the first thing that it does wrong."""

from __future__ import annotations

import ast
import linecache
import os
from collections.abc import Iterable, Iterator, Sized
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import FrameType, ModuleType, TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils.data import Dataset

from fx_lsp.files import NOTEBOOK
from fx_lsp.messages.exceptions import OVERWRITTEN
from fx_lsp.messages.places import line_of, mention
from fx_lsp.model import Failure, TraceRequest
from fx_lsp.tracer.capture.autograd_functions import GradientError, checked_gradients
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.failures.exceptions import failure_of, is_wrong
from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.program.absences import Absent, AbsentError
from fx_lsp.tracer.program.load import empty_module
from fx_lsp.tracer.program.rewriting.script import rehearsed
from fx_lsp.tracer.rehearsal.program_run import ProgramRun
from fx_lsp.tracer.rehearsal.top_level import TopLevel
from fx_lsp.tracer.run.in_place import overwritten
from fx_lsp.tracer.run.observation import Run, watched_run
from fx_lsp.tracer.run.torch_calls import FailedCall, tensors_among
from fx_lsp.tracer.run.values import constants
from fx_lsp.tracer.run.values.constants import arrays_refuse_gradients
from fx_lsp.tracer.source.expressions import shown_expression
from fx_lsp.tracer.source.provenance import Sources

SECONDS = 10.0
"""The time that a rehearsal may take."""
_HOME = os.path.dirname(torch.__file__) + os.sep
_OF_LIBRARY = tuple(
    _HOME + part
    for part in ("nn/", "optim/", "functional.py", "_tensor.py", "autograd/", "distributions/", "utils/data/")
)
"""The parts of PyTorch that raise only where they are used wrongly."""
_FOLDERS = ("jit", "onnx", "export", "testing", "multiprocessing", "distributed", "cuda", "profiler", "ao")
_FILES = ("storage.py", "serialization.py", "hub.py", "utils/tensorboard/")
_ABOUT_MORE = tuple(_HOME + part for part in (*(f"{folder}/" for folder in _FOLDERS), *_FILES))
"""The parts of PyTorch that do more with tensors than compute: with storages, code, other processes."""
_VALUES = os.path.dirname(constants.__file__) + os.sep
"""The code that answers for PyTorch where a tensor is asked for its values."""
_OF_OPERATIONS = (RuntimeError, ValueError, IndexError, TypeError, AssertionError)
"""Exceptions of an operation that does not fit its operands."""


class _Wrong(BaseException):
    """Ends a rehearsal; `__cause__` is what the script itself did wrong."""


@dataclass
class _Rehearsal(ProgramRun):
    sources: Sources = field(kw_only=True)
    run: Run = field(kw_only=True)
    statements: list[ast.stmt] = field(kw_only=True)
    top: TopLevel = field(kw_only=True)
    is_evident: bool = False
    counted: tuple[int, int, int] = (0, 0, 0)

    def proceed(self, module: ModuleType, is_last: bool = False) -> None:
        """Note what the next statement of the program does, or did before it failed."""
        node, (calls, backwards, operations) = self.statements.pop(0), self.counted
        self.counted = self.turns.calls, self.turns.backwards, self.operations
        if self.counted[0] == calls and not is_last:
            self.top.pass_by(node)
        elif self.top.add(node, vars(module), self.counted[1] > backwards, is_last):
            self.is_evident |= is_last or self.counted[2] > operations

    def forget_failed(self) -> None:
        """Forget the torch call that failed last: a placeholder replaces its result."""
        self.run.failed = None

    def examine(self, error: BaseException) -> None:
        """End the run with an error that is the script's own doing."""
        if self._is_own(error):
            raise _Wrong from error
        self.forget_failed()

    def _is_own(self, error: BaseException) -> bool:
        """Return True if an error is a mistake of the script: no missing data or package had a part in it."""
        failed = self.run.failed
        if self._is_of_options(error) or _stems_from_absence(error) or not is_wrong(error, failed):
            return False
        frames = list(_frames(error.__traceback__))
        if any(frame.f_code.co_filename.startswith(_ABOUT_MORE) for frame, _ in frames):
            return False
        users = [frame for frame in frames if self.sources.rank(frame[0].f_code.co_filename) == 0]
        if not users or any(self._reads_what_was_cut(*frame) for frame in users):
            return False
        if failed is not None and failed.chain[:1] == self.sources.traceback_chain(error.__traceback__)[:1]:
            return isinstance(error, _OF_OPERATIONS) and not self._is_vague(failed)
        if self._may_lack_something(frames):
            return False
        frame, line = frames[-1]
        if frame.f_code.co_filename.startswith((*_OF_LIBRARY, _VALUES)):
            return True
        is_users = self.sources.rank(frame.f_code.co_filename) == 0
        imports = any(frame.f_code.co_filename.startswith("<frozen importlib") for frame, _ in frames)
        return is_users and not imports and _is_of_python(error, frame, line)

    def _is_of_options(self, error: BaseException) -> bool:
        """Return True if options of the command line or sizes of missing images are assumed, or options have no value
        that selects a branch.
        """
        return bool(self.line.invented or notes().sizes or (self.line.unset and isinstance(error, UnboundLocalError)))

    def _is_vague(self, failed: FailedCall) -> bool:
        """Return True if what a call was given may be otherwise once everything is there."""
        if self._may_lack_something() and _has_empty_list(failed.args, failed.kwargs):
            return True
        return _is_vague(failed.args, failed.kwargs)

    def _may_lack_something(self, frames: Iterable[tuple[FrameType, int]] = ()) -> bool:
        """Return True if something is missing so far, or in frames, so that this may cause an error."""
        is_empty = any(_is_without_samples(frame) for frame, _ in frames)
        return bool(self.absences.errors) or bool(notes().weights) or is_empty

    def _reads_what_was_cut(self, frame: FrameType, line: int) -> bool:
        """Return True if a frame is at a statement that reads what a loop would have added more to."""
        statement = _statement(frame, line) if self.turns.collected else None
        names = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(statement)} if statement else set()
        return bool(names & self.turns.collected)


@dataclass(frozen=True)
class Rehearsed:
    """Hold the module that a script ran in, the first thing that it does `wrong`, and its tree with a function of its
    top level, if that computes with tensors.
    """

    module: ModuleType
    wrong: Failure | None
    tree: ast.Module | None


def rehearse(request: TraceRequest, sources: Sources, mode: FakeTensorMode) -> Rehearsed:
    """Run a script, and define its top level as a function of its name."""
    run = Run(checked=True)
    tree = rehearsed(ast.parse(request.source, request.file))
    top = TopLevel(ast.parse(request.source, request.file))
    rehearsal = _Rehearsal(sources=sources, run=run, statements=[*tree.body], top=top)
    lines = request.source.splitlines()
    linecache.cache[request.file] = (len(request.source), None, request.source.splitlines(keepends=True), request.file)
    module = empty_module(request)
    vars(module).update(rehearsal.namespace())

    with ExitStack() as stack:
        stack.enter_context(rehearsal.surroundings(request.file, sources, lines, mode))
        stack.enter_context(arrays_refuse_gradients())
        stack.enter_context(checked_gradients(sources))

        def whole() -> None:
            rehearsal.execute(tree, request.file, module)

        watched_run(sources, whole, ProgramRun.execute.__code__, None, run)
        if isinstance(run.error, _Wrong):
            rehearsal.proceed(module, is_last=True)
    defined = top.define(request.name, module) if rehearsal.is_evident else None
    return Rehearsed(module, _wrong(rehearsal, lines), defined)


def _wrong(rehearsal: _Rehearsal, lines: list[str]) -> Failure | None:
    """Return the first thing that a script does wrong; None where nothing is."""
    run = rehearsal.run
    error = run.error.__cause__ if isinstance(run.error, _Wrong) else None
    if isinstance(error, GradientError):
        return Failure("shape", error.remark.message, error.remark.span, severity="error")
    if error is not None:
        failure = failure_of(error, rehearsal.sources, run.failed, lines, "error")
        return _of_overwritten(rehearsal, error, lines, failure) or failure
    return next(_of_findings(rehearsal), None)


def _of_overwritten(rehearsal: _Rehearsal, error: BaseException, lines: list[str], failure: Failure) -> Failure | None:
    """Return the failure of a backward pass whose values were changed in place: what changed them, and where."""
    failed = rehearsal.run.failed
    losses = tensors_among(failed.args, failed.kwargs) if failed is not None else ()
    for write in overwritten(losses, rehearsal.run.writes):
        change = write.chain[0]
        name = next(_names_of(write.parameter, error), "") if write.parameter is not None else ""
        value = f"`{name}`" if name else f"what {write.saved_by.lower()} saved"
        shown = shown_expression(change, lines)
        overwriting = OVERWRITTEN.failure(failure.span, value=value, change=shown, place=line_of(change))
        mentions = (mention(change),)
        return replace(overwriting, severity=failure.severity, raised=failure.raised, mentions=mentions)
    return None


def _names_of(parameter: torch.Tensor, error: BaseException) -> Iterator[str]:
    """Yield what the functions that an error passed through call a parameter: `net.weight`."""
    for frame, _ in _frames(error.__traceback__):
        for variable, value in frame.f_locals.items():
            parts = value.named_parameters(variable) if isinstance(value, nn.Module) else [(variable, value)]
            yield from (name for name, part in parts if part is parameter)


def _of_findings(rehearsal: _Rehearsal) -> Iterator[Failure]:
    """Yield the findings on pairs of all elements of two tensors, and on training where nothing is absent."""
    for finding in rehearsal.run.findings:
        if finding.code == "all-pairs":
            yield Failure("shape", finding.message, finding.span, severity="warning")
        elif finding.code == "training" and finding.severity != "hint" and not rehearsal.absences.errors:
            yield Failure("training", finding.message, finding.span, severity=finding.severity)


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


def _stems_from_absence(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, AbsentError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_vague(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if the arguments of a call are in part absent, or of sizes that depend on data."""
    values = [*args, *kwargs.values()]
    values += [item for value in values if isinstance(value, (list, tuple)) for item in value]
    sizes = (size for tensor in tensors_among(args, kwargs) for size in tensor.shape)
    return any(isinstance(value, (Absent, torch.SymInt)) for value in values) or not all(type(s) is int for s in sizes)


def _is_without_samples(frame: FrameType) -> bool:
    """Return True if a function works on a dataset without samples: the folder of its files may be missing."""
    sets = [value for value in frame.f_locals.values() if isinstance(value, Dataset) and isinstance(value, Sized)]
    return any(not len(dataset) for dataset in sets)


def _has_empty_list(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a call is given an empty collection: what would have filled it may not have run."""
    return any(isinstance(value, (list, tuple, dict)) and not value for value in (*args, *kwargs.values()))


def _is_of_python(error: BaseException, frame: FrameType, line: int) -> bool:
    """Return True if an error that Python itself raised in a statement is one whatever the data."""
    statement = _statement(frame, line)
    if statement is None or isinstance(statement, (ast.Raise, ast.Assert)):
        return False
    if isinstance(error, AttributeError):
        is_gradient = any(getattr(part, "attr", "") == "grad" for part in ast.walk(statement))
        return (error.obj is not None or is_gradient) and not isinstance(error.obj, ModuleType)
    if isinstance(error, ValueError):
        return isinstance(statement, ast.Assign) and _gives_tensors(statement.value, frame)
    if isinstance(error, NameError) and frame.f_code.co_filename.endswith(NOTEBOOK):
        return False  # IPython and commands of cells define names too
    is_of_none = "NoneType" in str(error) and not any(getattr(p, "attr", "") == "grad" for p in ast.walk(statement))
    return isinstance(error, (NameError, TypeError)) and not is_of_none


def _gives_tensors(node: ast.expr, frame: FrameType) -> bool:
    """Return True if an expression is what a module gives, or a tensor or a tuple with some."""
    value = _value_of(node.func if isinstance(node, ast.Call) else node, frame)
    if isinstance(node, ast.Call):
        return isinstance(value, nn.Module)
    parts = value if isinstance(value, (tuple, list)) else [value]
    return any(isinstance(part, torch.Tensor) for part in parts)


def _value_of(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of an expression of names and attributes in a frame."""
    if isinstance(node, ast.Attribute):
        return getattr(_value_of(node.value, frame), node.attr, None)
    name = node.id if isinstance(node, ast.Name) else ""
    return frame.f_locals.get(name, frame.f_globals.get(name))


def _statement(frame: FrameType, line: int) -> ast.stmt | None:
    """Return the innermost statement of a frame's file at a line."""
    try:
        tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    except (SyntaxError, ValueError):
        return None
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.stmt))
    around = [node for node in nodes if node.lineno <= line <= (node.end_lineno or node.lineno)]
    return max(around, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)
