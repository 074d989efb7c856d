"""Observe one run of the target on fake tensors: the values of expressions and variables, and the place where
it stops.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial, reduce
from types import CodeType, FrameType, TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fx_lsp.model import InputSpec, ObservedValue, Remark, Span
from fx_lsp.tracer.compat import HAS_COLUMNS
from fx_lsp.tracer.run.branches import Branches, Coverage
from fx_lsp.tracer.run.call import Call
from fx_lsp.tracer.run.checks.following import Findings
from fx_lsp.tracer.run.checks.pairs import ELEMENTWISE
from fx_lsp.tracer.run.checks.waits import reads_told
from fx_lsp.tracer.run.checks.warned import warnings_told
from fx_lsp.tracer.run.conditions import Conditions
from fx_lsp.tracer.run.dependence import Dependence
from fx_lsp.tracer.run.in_place import Write, maker_of, written_tensor
from fx_lsp.tracer.run.operations.recurrent import OneOperation
from fx_lsp.tracer.run.tensors import describe
from fx_lsp.tracer.run.torch_calls import Caller, FailedCall, TorchCall, tensors_among
from fx_lsp.tracer.run.values.decisions import current_decisions
from fx_lsp.tracer.run.values.numbers import refuse_numbers
from fx_lsp.tracer.source.provenance import METADATA, Chain, Sources

MAX_VALUES = 20_000
_BETWEEN = "fx_lsp.", "warnings"
"""Modules whose frames are between a warning and the code that warns."""
_ASKS_IF_COMPILED = frozenset(name for name in dir(torch.compiler) if name.endswith("compiling"))
_FORWARDING = frozenset({"torch.overrides", "torch.functional", "torch.nn.functional", "torch._tensor"})
"""Modules whose functions are torch calls themselves, made by their callers."""
_most_repeats: ContextVar[int | None] = ContextVar("most repeats", default=None)


class LongLoop(BaseException):
    """An expression ran as often as an observed run allows: it is in a loop with so many iterations."""


@contextmanager
def repeats_at_most(count: int) -> Generator[None, None, None]:
    """End observed runs inside with a LongLoop if one of the user's expressions has run `count` times."""
    token = _most_repeats.set(count)
    try:
        yield
    finally:
        _most_repeats.reset(token)


@dataclass
class Run:
    """Hold the results of one observed run. `calls` counts torch calls that returned, a measure of its progress.

    `expansions` counts element-wise calls whose operands had different ranks above one, a sign of inputs that fit by
    accident; so are `unbatched`, calls of layers with an unbatched example. `emptied` counts calls that removed all
    elements of their operands; `writes` are changes in place. `touched` are the ids of the tensors that torch calls
    received. `repeats` counts the torch calls of each of the user's expressions, if values were recorded. `calling` is
    the running torch call. `findings` are mistakes in the target's file, if values were recorded or it is `checked`,
    and `findings_of_shapes` those that depend on the operands' shapes. `coverage` has the executed lines of that file,
    if values were recorded. `recorded` are the torch calls that returned, for a run that begins with an empty list of
    them, and `last` is the last of all, without its expressions. `made_up` is the place of the first number assumed for
    a tensor's value; `dependence` has the inputs that tensors follow from.
    """

    result: Any = None
    error: BaseException | None = None
    failed: FailedCall | None = None
    calls: int = 0
    expansions: int = 0
    emptied: int = 0
    unbatched: list[Chain] = field(default_factory=list[Chain])
    writes: list[Write] = field(default_factory=list[Write])
    touched: set[int] = field(default_factory=set[int])
    values: list[ObservedValue] = field(default_factory=list)
    repeats: Counter[Span] = field(default_factory=Counter[Span])
    calling: FailedCall | None = None
    findings: tuple[Remark, ...] = ()
    findings_of_shapes: tuple[Remark, ...] = ()
    coverage: Coverage = field(default_factory=Coverage)
    recorded: list[TorchCall] | None = None
    last: TorchCall | None = None
    checked: bool = False
    made_up: TracebackType | None = None
    dependence: Dependence = field(default_factory=Dependence)

    def record(self, call: TorchCall) -> None:
        """Store a torch call, if this run records its calls."""
        if self.recorded is not None:
            self.recorded.append(call)


@dataclass
class Stopped:
    """Hold a recorded run of a failing target: its call, its conditions, and its inputs for the user."""

    run: Run
    call: Call
    conditions: Conditions
    inputs: tuple[InputSpec, ...]


class Watch(TorchFunctionMode):
    """Count torch calls and record the one that failed; with `values`, also the result of each expression."""

    def __init__(self, sources: Sources, stop: CodeType, run: Run, values: Values | None) -> None:
        super().__init__()
        self._sources, self._stop, self._run, self._values = sources, stop, run, values
        self.findings = Findings(sources, stop)
        self._most_repeats = _most_repeats.get()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in METADATA or func in _OF_NUMBERS:
            return func(*args, **kwargs)
        refuse_numbers((*args, *kwargs.values()))
        if _is_unbatched(func, args):
            self._run.unbatched.append(self.chain(sys._getframe(1)))
        written = written_tensor(func, args, kwargs)
        maker = maker_of(written) if written is not None else None
        tracer = sys.gettrace()
        if tracer is not None:
            sys.settrace(None)
        pairing = self.findings.columns.pairing_of(tensors_among(args, kwargs))
        try:
            self._run.calling = FailedCall(func, args, kwargs, (), pairing)
            result = checked_call(func, args, kwargs)
        except BaseException:
            if self._run.failed is None:
                chain = self.chain(sys._getframe(1))
                self._run.failed = FailedCall(func, args, kwargs, chain, pairing)
            raise
        finally:
            self._run.calling = None
            if tracer is not None:
                sys.settrace(tracer)
        frame = sys._getframe(1)
        if getattr(func, "__module__", "") != torch.nn.init.__name__:  # a run on symbols leaves that out
            self._count(func, args, kwargs, result)
        if maker is not None:
            self._run.writes.append(Write(self.chain(frame), maker))
        if self._values is not None or self._run.checked:
            chain, caller = self.chain(frame), self._caller(frame)
            self._keep(TorchCall(func, args, kwargs, result, chain, caller))
        return result

    def _caller(self, frame: FrameType) -> Caller:
        while frame.f_back is not None and frame.f_globals.get("__name__") in _FORWARDING:
            frame = frame.f_back
        if frame.f_code.co_filename == self._sources.file:
            return "code"
        return "layer" if frame.f_globals.get("__name__", "").startswith("torch.nn.modules.") else "library"

    def chain(self, frame: FrameType) -> Chain:
        """Return the user's expressions of a frame."""
        return self._sources.chain(frame, self._stop)

    def warned(self) -> Chain:
        """Return the expressions that PyTorch warns of; empty for a warning of other code.

        Also empty if the warning code asks whether it is compiled: here it never is.
        """
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_BETWEEN):
            frame = frame.f_back
        is_of_torch = self._run.calling is not None or frame.f_globals.get("__name__", "").startswith("torch.")
        chain, file = self.chain(frame) if is_of_torch else (), frame.f_code.co_filename
        while frame is not None and frame.f_code.co_filename == file:
            if not _ASKS_IF_COMPILED.isdisjoint(frame.f_code.co_names):
                return ()
            frame = frame.f_back
        return chain

    def operands(self) -> Iterator[torch.Tensor]:
        """Yield the tensors of the running torch call."""
        call = self._run.calling
        return tensors_among(call.args, call.kwargs) if call is not None else iter(())

    def _count(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Count a call that returned, and record signs of unintended inputs."""
        self._run.last = TorchCall(func, args, kwargs, result, ())
        tensors = list(tensors_among(args, kwargs))
        self._run.dependence.follow(tensors, result)
        self._run.calls += result is not None or bool(tensors)  # else it only switches something on or off
        self._run.touched.update(map(id, tensors))
        self._run.expansions += has_different_ranks(func, args)
        if tensors and not any(map(_is_empty, tensors)):
            self._run.emptied += isinstance(result, torch.Tensor) and _is_empty(result)

    def _keep(self, call: TorchCall) -> None:
        """Record the result of a call, by its expressions, and its mistakes."""
        self.findings.follow(call)
        chain = call.chain
        if self._values is None:
            return
        if chain and chain[0].file == self._sources.file:
            self._values.add(chain[0], "", call.result, last=call.caller != "code")
        self._run.record(call)
        if chain:
            self._run.repeats[chain[0]] += 1
            if self._run.repeats[chain[0]] == self._most_repeats:
                raise LongLoop


def _is_empty(tensor: torch.Tensor) -> bool:
    """Return True for a tensor without elements; symbols are not evaluated."""
    return any(type(size) is int and size == 0 for size in tensor.shape)


def has_different_ranks(func: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Return True for an element-wise call whose operands have different ranks above one."""
    ranks = {a.dim() for a in args if isinstance(a, torch.Tensor)}
    return len(ranks) > 1 and min(ranks) > 1 and getattr(func, "__name__", "") in ELEMENTWISE


def checked_call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a PyTorch function; errors that fake tensors would miss are raised as on real ones."""
    check_masks(func, args)
    check_dimension(func, args, kwargs)
    return func(*args, **kwargs)


def check_masks(func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Raise IndexError if `x[mask]` has a mask of other sizes than `x`, which fake tensors do not check."""
    if getattr(func, "__name__", "") not in ("__getitem__", "__setitem__") or not isinstance(args[0], torch.Tensor):
        return
    shape, position = args[0].shape, 0
    for part in args[1] if isinstance(args[1], tuple) else (args[1],):
        if part is ...:
            return
        if isinstance(part, torch.Tensor) and part.dtype is torch.bool:
            there = shape[position : position + part.dim()]
            are_numbers = all(type(size) is int for size in (*part.shape, *there))
            if are_numbers and len(there) < part.dim():
                raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
            if are_numbers and part.shape != there:
                index = next(index for index, size in enumerate(there) if part.shape[index] != size)
                raise IndexError(
                    f"The shape of the mask {list(part.shape)} at index {index} does not match the shape of the "
                    f"indexed tensor {list(shape)} at index {position + index}"
                )
            position += part.dim()
        elif part is not None:
            position += 1


def check_dimension(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise IndexError if a softmax or a sort has an invalid dimension, which fake tensors do not check."""
    tensor, *rest = (*args, None)
    if getattr(func, "__name__", "") not in _OF_ANY_DIMENSION or not isinstance(tensor, torch.Tensor):
        return
    dim, rank = kwargs.get("dim", rest[0]), max(tensor.dim(), 1)
    if type(dim) is int and not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")


_OF_ANY_DIMENSION = frozenset({"softmax", "log_softmax", "softmin", "sort", "argsort"})
_OF_NUMBERS = frozenset(getattr(torch, name) for name in dir(torch) if name.startswith(("sym_", "_sym_")))
"""Calls on symbols that are not torch calls on plain numbers."""
_UNBATCHED_DIMS = {f"conv{kind}{n}d": n + 1 for kind in ("", "_transpose") for n in (1, 2, 3)} | {
    "multi_head_attention_forward": 2
}
"""The rank of an unbatched example for a call, by its name."""


def _is_unbatched(func: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Return True for a layer's call with an unbatched example."""
    name = getattr(func, "__name__", "")
    if name == "unsqueeze":  # recurrent layers add the batch dimension themselves
        return sys._getframe(2).f_globals.get("__name__") == "torch.nn.modules.rnn"
    dims = _UNBATCHED_DIMS.get(name)
    return dims is not None and bool(args) and isinstance(args[0], torch.Tensor) and args[0].dim() == dims


class Values:
    """Collect `ObservedValue`s of tensors and integers: the first at a place, and whether later ones differed.

    The return value of a Python call is the value of its expression; torch calls inside had other values there before.
    """

    def __init__(self) -> None:
        self._specs: dict[tuple[Span, str], str] = {}
        self._returned: dict[tuple[Span, str], str] = {}
        self._varying: set[tuple[Span, str]] = set()

    def add(self, span: Span, name: str, value: Any, last: bool = False) -> None:
        """Record that `name` (or the expression itself, for "") had `value` at `span`.

        With `last` a later value replaces an earlier one: several torch calls inside one expression end in its value.
        """
        spec = str(value) if type(value) is int else describe(value)
        if spec is None or len(self._specs) >= MAX_VALUES:
            return
        if last:
            self._specs[span, name] = spec
        else:
            self._keep_first(self._specs, span, name, spec)

    def add_returned(self, span: Span, value: Any) -> None:
        """Record that the call at `span` returned `value`."""
        spec = describe(value)
        if spec is not None and len(self._specs) < MAX_VALUES:
            self._specs[span, ""] = spec  # keeps its place in the order
            self._keep_first(self._returned, span, "", spec)

    def _keep_first(self, specs: dict[tuple[Span, str], str], span: Span, name: str, spec: str) -> None:
        if specs.setdefault((span, name), spec) != spec:
            self._varying.add((span, name))

    def collected(self) -> list[ObservedValue]:
        """Return all values in the order of their first record."""
        specs = {**self._specs, **self._returned}
        return [ObservedValue(s, n, spec, (s, n) in self._varying) for (s, n), spec in specs.items()]


def watched_run(
    sources: Sources, call: Callable[[], Any], stop: CodeType, statements: Statements | None, run: Run | None = None
) -> Run:
    """Run `call()` (whose frame runs the code `stop`) and record it in `run`. Only raises KeyboardInterrupt.

    With `statements` the values of variables and expressions in the target's file are recorded too.
    """
    run = run or Run()
    decisions = current_decisions()
    if decisions is not None:
        decisions.begin()
    values = Values() if statements is not None else None
    tracer = None
    if statements is not None and values is not None:
        tracer = _FrameTracer(sources, statements, values, run.coverage).enter
    previous = sys.gettrace()
    watch = Watch(sources, stop, run, values)
    try:
        tell = watch.findings.tell
        warned = warnings_told(watch.warned, watch.operands, tell)
        with OneOperation(), warned, reads_told(watch.chain, tell), watch.findings.watching(), watch:
            if tracer is not None:
                sys.settrace(tracer)
            try:
                run.result = call()
            finally:
                sys.settrace(previous)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        run.error = error
    if run.error is None or isinstance(run.error, SystemExit):
        watch.findings.end(run.result)
    run.findings, run.findings_of_shapes = (watch.findings.all(of_shapes) for of_shapes in (False, True))
    if decisions is not None:
        run.made_up = decisions.place
    if values is not None:
        run.values = values.collected()
    return run


class Statements:
    """Index the statements of a file by line, to find the one that bound a name."""

    def __init__(self, tree: ast.Module, file: str) -> None:
        self._file = file
        self._bindings: dict[tuple[int, str], Span] = {}
        self._returns: dict[int, Span] = {}
        self._functions: dict[int, Span] = {}
        self._nodes: dict[Span, ast.FunctionDef | ast.AsyncFunctionDef] = {}
        self.branches = Branches(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Return) and node.value is not None:
                for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                    self._returns[line] = self._span(node)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                header = Span(file, node.lineno, node.col_offset, node.lineno, node.col_offset)
                self._nodes[header] = node
                for line in range(first, node.body[0].lineno):
                    self._functions[line] = header
            elif isinstance(node, ast.Lambda):
                place = Span(file, node.lineno, node.col_offset, node.lineno, node.col_offset)
                self._functions.setdefault(node.lineno, place)
            for head in _binding_heads(node):
                for line in range(head.lineno, (head.end_lineno or head.lineno) + 1):
                    for name in _stored_names(head):
                        self._bindings[line, name] = self._span(head)

    def _span(self, node: ast.stmt | ast.expr) -> Span:
        return Span(self._file, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)

    def binding(self, line: int, name: str) -> Span | None:
        """Return the statement (or loop target) that runs at `line` and binds `name`, or None."""
        return self._bindings.get((line, name))

    def returning(self, line: int) -> Span | None:
        """Return the return statement that covers `line`, or None."""
        return self._returns.get(line)

    def function(self, line: int) -> Span | None:
        """Return the start of the function whose header covers `line`, or None."""
        return self._functions.get(line)

    def attributes(self, header: Span) -> Iterator[tuple[Span, list[str]]]:
        """Yield each chain of attributes that the function at `header` reads and does not set: `self.n_head`."""
        node = self._nodes.get(header)
        inside = [] if node is None else [n for n in ast.walk(node) if isinstance(n, ast.Attribute)]
        changed = {n.attr for n in inside if not isinstance(n.ctx, ast.Load)}
        for attribute in inside:
            names = _dotted_names(attribute)
            if names and changed.isdisjoint(names[1:]):
                yield self._span(attribute), names


def _dotted_names(node: ast.Attribute) -> list[str]:
    """Return `["self", "config", "n_head"]` for `self.config.n_head`; empty for attributes of anything but a name."""
    base: ast.expr = node
    names: list[str] = []
    while isinstance(base, ast.Attribute):
        names.append(base.attr)
        base = base.value
    return [base.id, *reversed(names)] if isinstance(base, ast.Name) else []


def _stored_attribute(value: Any, name: str) -> Any:
    """Return an attribute of an object without running its code, and None without one.

    A module stores submodules, parameters and buffers separately, which it does not yet have during construction.
    """
    for store in ("_modules", "_parameters", "_buffers") if isinstance(value, torch.nn.Module) else ():
        if name in (registered := vars(value).get(store, {})):
            return registered[name]
    return inspect.getattr_static(value, name, None)


def _binding_heads(node: ast.AST) -> list[ast.stmt | ast.expr]:
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return [node]
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return [node.target]
    if isinstance(node, ast.With):
        return [i.optional_vars for i in node.items if i.optional_vars is not None]
    if isinstance(node, ast.NamedExpr):
        return [node]
    return []


def _stored_names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_NOT_CALLED = frozenset({"__init__", "__iter__", "__next__", "__enter__", "__exit__", "__setattr__", "__setitem__"})
"""Methods that statements call implicitly, so that no expression has their return value."""


@dataclass
class _FrameTracer:
    """Record the values of expressions and variables of the target's file while frames run, for `sys.settrace`."""

    sources: Sources
    statements: Statements
    values: Values
    coverage: Coverage
    headers: set[Span] = field(default_factory=set[Span])

    def enter(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        """Begin to trace a frame: frames of the target's file completely, others for the return values of calls from
        that file.
        """
        if event != "call":
            return None
        call = self._calling_expression(frame)
        if frame.f_code.co_filename == self.sources.file:
            self._record_arguments(frame)
            self.coverage.functions.add(frame.f_code.co_firstlineno)
            return _TracedFrame(self, frame, call).step
        if call is None:
            return None
        frame.f_trace_lines = False
        return partial(self._step_elsewhere, call)

    def _step_elsewhere(self, call: Span, frame: FrameType, event: str, value: Any) -> Callable[..., Any]:
        if event == "return":
            self.values.add_returned(call, value)
        return partial(self._step_elsewhere, call)

    def _calling_expression(self, frame: FrameType) -> Span | None:
        """Return the expression of the target's file whose value a frame returns, or None."""
        caller, code = frame.f_back, frame.f_code
        is_call = not code.co_flags & _SUSPENDED and code.co_name not in _NOT_CALLED
        if not HAS_COLUMNS or caller is None or caller.f_code.co_filename != self.sources.file or not is_call:
            return None
        return self.sources.span(caller.f_code, caller.f_lasti, caller.f_lineno)

    def _record_arguments(self, frame: FrameType) -> None:
        header = self.statements.function(frame.f_code.co_firstlineno)
        resumed = frame.f_lineno != frame.f_code.co_firstlineno  # a generator or a coroutine that resumes
        if header is None or resumed:
            return
        for name, value in list(frame.f_locals.items()):
            self.values.add(header, name, value)
        if header not in self.headers:
            self.headers.add(header)
            self._record_attributes(frame, header)

    def _record_attributes(self, frame: FrameType, header: Span) -> None:
        for span, (first, *names) in self.statements.attributes(header):
            value = reduce(_stored_attribute, names, frame.f_locals.get(first))
            if type(value) is int or isinstance(value, torch.Tensor):
                self.values.add(span, "", value)


class _TracedFrame:
    """Hold a frame of the target's file: the last recorded values of its variables, and its last line."""

    def __init__(self, tracer: _FrameTracer, frame: FrameType, call: Span | None) -> None:
        self._tracer, self._call = tracer, call
        self._held = {name: id(value) for name, value in frame.f_locals.items()}
        self._line, self._failed = frame.f_lineno, False

    def step(self, frame: FrameType, event: str, value: Any) -> Callable[..., Any]:
        """Record the changes of the last line, and return values."""
        coverage, branches = self._tracer.coverage, self._tracer.statements.branches
        if event == "line":
            self._record_changes(frame)
            self._line, self._failed = frame.f_lineno, False
            coverage.lines.add(self._line)
            if self._line in branches.deciders:
                branches.note(self._line, frame, coverage)
        elif event == "exception":
            self._failed = True
        elif event == "return":
            self._record_changes(frame)
            self._record_result(value)
        return self.step

    def _record_changes(self, frame: FrameType) -> None:
        for name, value in frame.f_locals.items():
            if self._held.get(name) == id(value):
                continue
            self._held[name] = id(value)
            span = self._tracer.statements.binding(self._line, name)
            if span is not None:
                self._tracer.values.add(span, name, value)

    def _record_result(self, value: Any) -> None:
        span = self._tracer.statements.returning(self._line)
        if span is not None and not self._failed:
            self._tracer.values.add(span, "return", value)
        if self._call is not None:
            self._tracer.values.add_returned(self._call, value)
