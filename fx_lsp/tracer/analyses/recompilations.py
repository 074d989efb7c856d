"""Run `torch.compile` on calls of a target in order: which of them are compiled again, and the guard that fails."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch
import torch._dynamo
from torch import fx, nn

from fx_lsp.messages.findings import RECOMPILES, RECOMPILES_EACH_TIME
from fx_lsp.model import InputSpec, Related, Remark, Span
from fx_lsp.syntax import FunctionNode, parse
from fx_lsp.tracer.analyses.breaks import laid_out, real_input, runs_for_real
from fx_lsp.tracer.analyses.guards import FailedGuard, failed_guard, readable_guard, sources_in
from fx_lsp.tracer.compat import (
    CompiledGuard,
    exact_positions,
    guards_of,
    is_unsafe_in_cuda_graph,
    placeholder_source,
    watched_recompilations,
)
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.inputs.evidence.body import find_function
from fx_lsp.tracer.program.devices import left
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.program.reads import environment_unwatched
from fx_lsp.tracer.run.call import Call, FlatInput, substitute
from fx_lsp.tracer.run.callables import finished, innermost
from fx_lsp.tracer.run.lru_caches import forget_results
from fx_lsp.tracer.run.state import replaced, unchanged
from fx_lsp.tracer.run.values.decisions import undecided
from fx_lsp.tracer.run.values.symbols import size_hint
from fx_lsp.tracer.stages.ledger import Ledger, page

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

RECOMPILATIONS, RECOMPILATIONS_DATA = "recompiles", "recompiles:json"
"""The page of the calls that are compiled again, which is also the work that produces it, and the same as JSON."""
ONLY, CALLS = "only", "calls"
"""The option of the work, and its value that leaves out changes of arguments."""
MAX_SECONDS = 20.0
"""The processor time after which no further change of an argument is tried."""
_COPY = torch.ops.aten.copy_.default
_TITLE = "torch.compile: the calls that are compiled again, and the guards"


@dataclass(frozen=True)
class CompiledCall:
    """Describe a call to make: its `number` among the project's calls, or 0 for a change of an argument.

    `text` are its arguments, and `place` is where they come from. `training` is the mode of the module, if it is known.
    """

    call: Call
    number: int
    text: str
    place: str = ""
    training: bool | None = None
    gradient: bool = True


@dataclass(frozen=True)
class FailedReason:
    """Describe a guard that a call does not meet: its condition, the code that it belongs to, what it reads.

    `parameters` are those of the target, if it belongs to the target's own code; `line` of `file` needs the guard.
    """

    function: str
    condition: str
    source: str
    parameters: tuple[str, ...]
    file: str = ""
    line: int = 0


@dataclass
class CallResult:
    """Hold what Dynamo does for a call: for each compilation again, the guards that failed, the latest code first.

    `dynamic` are the sizes and numbers that new code has as symbols. `error` is the exception that the call raised.
    """

    again: list[tuple[FailedReason, ...]] = field(default_factory=list["tuple[FailedReason, ...]"])
    dynamic: tuple[str, ...] = ()
    error: BaseException | None = None

    @property
    def cause(self) -> FailedReason | None:
        """Return the guard of the latest code that failed first."""
        return next((reason for reasons in self.again for reason in reasons), None)


@dataclass(frozen=True)
class ArgumentChange:
    """Describe a change of one argument: `parameter` is "" for the mode of the call.

    `tries` are calls with other values; the first of them that run count.
    """

    parameter: str
    what: str
    tries: tuple[tuple[CompiledCall, ...], ...]


@dataclass(frozen=True)
class ChangeResult:
    """Hold the effect of a change: how many of its values are compiled again, the guard, and what becomes dynamic."""

    change: ArgumentChange
    times: int
    cause: FailedReason | None
    dynamic: tuple[str, ...]


def recompiles(traced: TracedCall) -> Ledger:
    """Return a page on the calls of a target that are compiled again, the guards, and changes of one argument."""
    ledger, target = Ledger(), _CompiledTarget(traced)
    calls = target.program_calls()
    guards: list[CompiledGuard] = []
    results, repeated = target.run_repeated(calls, guards)
    rows = [*_summary(calls, results), *_of_calls(calls, results), *_of_repeated(repeated), *_of_guards(guards, traced)]
    changes: list[ChangeResult] = []
    if traced.options.get(ONLY) != CALLS:
        changes, is_complete = target.changes(calls[0])
        rows += _of_changes(changes, is_complete)
    rows += _of_cuda_graphs(traced, results)
    ledger.text(RECOMPILATIONS, _TITLE, page(line for label, texts in rows for line in laid_out(label, texts)))
    ledger.text(RECOMPILATIONS_DATA, _TITLE, json.dumps(_data(calls, results, repeated, changes), indent=2))
    ledger.remarks += _remarks(calls, results, repeated, traced)
    return ledger


def recompilations(traced: TracedCall) -> list[Remark]:
    """Return remarks on the parameters and the state of a compiled target for which its calls are compiled again."""
    target = _CompiledTarget(traced)
    calls = target.program_calls()
    return list(_remarks(calls, *target.run_repeated(calls), traced))


class _CompiledTarget:
    """Runs calls of a target under Dynamo, with the same tensors for its parameters."""

    def __init__(self, traced: TracedCall) -> None:
        self._traced, self._is_real = traced, runs_for_real(traced)
        self._held = traced.call.held()
        self._tensors = [self._tensor(FlatInput(held.name, held.tensor, held.kind)) for held in self._held]
        function: Any = traced.call.function
        plain = innermost(type(function).forward if isinstance(function, nn.Module) else function)
        self._code: CodeType | None = getattr(plain, "__code__", None)

    def program_calls(self) -> list[CompiledCall]:
        """Return the calls of the project; without one, the traced call."""
        traced = self._traced
        with forbid_effects(), traced.mode:
            seen = list(traced.program_calls())
        if not seen:
            return [CompiledCall(traced.call, 1, _arguments_text(traced.inputs), _places(traced.inputs))]
        calls = [(replace(traced.call, args=one.call.args, kwargs=one.call.kwargs), one) for one in seen]
        return [
            CompiledCall(call, number, _arguments_text(one.inputs), _places(one.inputs), one.training)
            for number, (call, one) in enumerate(calls, 1)
        ]

    def run_repeated(
        self, calls: Sequence[CompiledCall], guards: list[CompiledGuard] | None = None
    ) -> tuple[list[CallResult], FailedReason | None]:
        """Return the results of calls, and the guard for which the last of them is compiled again whenever it is
        repeated: the code itself changes what it depends on.
        """
        *results, second, third = self.run((*calls, calls[-1], calls[-1]), guards)
        return results, third.cause if second.again and third.again else None

    def run(self, calls: Sequence[CompiledCall], guards: list[CompiledGuard] | None = None) -> list[CallResult]:
        """Make calls in order, with an empty cache of compiled code; add the guards of the first one to `guards`."""
        results: list[CallResult] = []
        modules = list(self._traced.call.modules.values())

        def on_again(code: CodeType, variables: Mapping[str, Any], managers: list[Any]) -> None:
            failed = (failed_guard(manager, variables) for manager in managers)
            results[-1].again.append(tuple(self._reason(code, guard) for guard in failed if guard is not None))

        def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Callable[..., Any]:
            results[-1].dynamic = tuple(dict.fromkeys((*results[-1].dynamic, *_dynamic_in(graph))))
            return graph.forward

        def on_guards(exported: Any) -> None:
            if guards is not None and len(results) == 1:
                guards.extend(guards_of(exported))

        torch._dynamo.reset()
        function = torch._dynamo.optimize(backend, guard_export_fn=on_guards)(self._traced.call.function)
        forget_results()
        inputs = [self._arguments(planned.call) for planned in calls]
        with self._surroundings(), unchanged(modules), watched_recompilations(on_again):
            for planned, tensors in zip(calls, inputs, strict=True):
                results.append(CallResult())
                root = modules[0] if modules else None
                if root is not None and planned.training not in (None, root.training):
                    root.train(bool(planned.training))
                try:
                    with nullcontext() if planned.gradient else torch.no_grad():
                        args, kwargs = _with(planned.call, tensors)
                        finished(function(*args, **kwargs))
                except (Exception, EffectBlocked) as error:
                    results[-1].error = error
        return results

    @contextmanager
    def _surroundings(self) -> Generator[None, None, None]:
        with ExitStack() as stack:
            stack.enter_context(replaced(self._held, iter(self._tensors)))
            for context in (left(self._traced.devices), forbid_effects(), undecided(), environment_unwatched()):
                stack.enter_context(context)
            stack.enter_context(exact_positions())
            yield

    def _tensor(self, item: FlatInput) -> torch.Tensor:
        return real_input(item) if self._is_real else item.tensor

    def _arguments(self, call: Call) -> list[torch.Tensor]:
        return [self._tensor(FlatInput(path, tensor, "input")) for path, tensor in call.arguments()]

    def _reason(self, code: CodeType, guard: FailedGuard) -> FailedReason:
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        is_own = self._code is not None and _place(code) == _place(self._code)
        is_method = bool(self._traced.call.modules) or "." in self._traced.request.name
        parameters = [n for n in guard.variables if n in names[int(is_method and names[:1] == ("self",)) :]]
        file, line = guard.place or ("", 0)
        file = next((f for f in (self._traced.request.file, code.co_filename) if file and f.endswith(file)), file)
        return FailedReason(
            code.co_name, guard.condition, guard.source, tuple(parameters) if is_own else (), file, line
        )

    def changes(self, first: CompiledCall) -> tuple[list[ChangeResult], bool]:
        """Return the effects of other values of each argument of a call, and whether all were tried."""
        until, results = time.process_time() + MAX_SECONDS, list[ChangeResult]()
        for change in _changes(first, self._traced):
            if time.process_time() > until:
                return results, False
            for calls in change.tries:
                base, *others = self.run((first, *calls))
                if base.error is not None:
                    return results, True
                if any(other.error is not None for other in others):
                    continue
                times = sum(bool(other.again) for other in others)
                cause = next((other.cause for other in others if other.cause is not None), None)
                dynamic = tuple(dict.fromkeys(name for other in others for name in other.dynamic))
                results.append(ChangeResult(change, times, cause, dynamic))
                break
        return results, True


def _with(call: Call, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    supply = iter(tensors)
    args = tuple(substitute(argument, supply) for argument in call.args)
    return args, {name: substitute(value, supply) for name, value in call.kwargs.items()}


def _place(code: CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_name


def _dynamic_in(graph: fx.GraphModule) -> Iterator[str]:
    """Yield the sizes and the numbers that a graph has as symbols, as expressions with the variables of the frame."""
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        if node.op == "placeholder" and isinstance(value, (torch.SymInt, torch.SymFloat)):
            yield placeholder_source(node)


def _arguments_text(inputs: Iterable[InputSpec]) -> str:
    return ", ".join(f"{item.name}={item.spec}" for item in inputs if item.source != "default")


def _places(inputs: Iterable[InputSpec]) -> str:
    """Return where the arguments of a call come from, as text."""
    details = dict.fromkeys(item.detail or item.source for item in inputs if item.source not in ("default", "search"))
    return ", ".join(details) or "guessed inputs"


def _changes(first: CompiledCall, traced: TracedCall) -> Iterator[ArgumentChange]:
    """Yield changes of the arguments of a call, one argument at a time."""
    call = first.call
    for path, tensor in call.arguments():
        sizes = [size_hint(size) for size in tensor.shape]
        for dim, size in enumerate(sizes):
            others = [size * times if size > 1 else times for times in (2, 3)]
            alone = tuple(_resized(first, {(path, dim)}, other) for other in others)
            equal = {(p, d) for p, t in call.arguments() for d, s in enumerate(t.shape) if size_hint(s) == size}
            together = tuple(_resized(first, equal, other) for other in others)
            yield ArgumentChange(_root(path), f"another size of dimension {dim} of `{path}`", (alone, together))
        if tensor.is_floating_point():
            required = not tensor.requires_grad
            other = _with_tensor(first, path, lambda t, r=required: t.detach().clone().requires_grad_(r))
            yield ArgumentChange(_root(path), f"`{path}` with requires_grad={required}", ((other,),))
            dtype = torch.bfloat16 if tensor.dtype != torch.bfloat16 else torch.float32
            other = _with_tensor(first, path, lambda t, d=dtype: t.detach().to(d).requires_grad_(t.requires_grad))
            yield ArgumentChange(_root(path), f"`{path}` as {str(dtype).removeprefix('torch.')}", ((other,),))
    for name, value in _scalars(call):
        calls = tuple(replace(first, number=0, call=_with_scalar(call, name, other)) for other in _others(value))
        yield ArgumentChange(name, f"another value of `{name}`", (calls,))
    yield ArgumentChange("", "a call without gradients (torch.no_grad)", ((replace(first, number=0, gradient=False),),))
    module = traced.call.modules.get("")
    if module is not None:
        training = module.training if first.training is None else first.training
        mode = "evaluation" if training else "training"
        yield ArgumentChange("", f"the module in {mode} mode", ((replace(first, number=0, training=not training),),))


def _root(path: str) -> str:
    """Return the parameter of a path: `xs` of `xs[0].weight`."""
    return path.partition("[")[0].partition(".")[0]


def _with_tensor(first: CompiledCall, path: str, change: Callable[[torch.Tensor], torch.Tensor]) -> CompiledCall:
    call = first.call.with_tensors(lambda own, tensor: change(tensor) if own == path else tensor)
    return replace(first, number=0, call=call)


def _resized(first: CompiledCall, dims: set[tuple[str, int]], size: int) -> CompiledCall:
    """Return a call with another size of some dimensions of its tensors."""

    def resized(path: str, tensor: torch.Tensor) -> torch.Tensor:
        sizes = [size if (path, dim) in dims else size_hint(old) for dim, old in enumerate(tensor.shape)]
        if not any(own == path for own, _ in dims):
            return tensor
        return tensor.new_empty(sizes).requires_grad_(tensor.requires_grad)

    return replace(first, number=0, call=first.call.with_tensors(resized))


def _scalars(call: Call) -> Iterator[tuple[str, bool | int | float | str]]:
    """Yield the arguments that are numbers, flags and words, defaults included."""
    try:
        signature = inspect.signature(getattr(call.function, "forward", call.function))
        bound = signature.bind(*call.args, **call.kwargs)
    except (TypeError, ValueError):
        return
    bound.apply_defaults()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for name, value in bound.arguments.items():
        if type(value) in (bool, int, float, str) and signature.parameters[name].kind in kinds:
            yield name, value


def _with_scalar(call: Call, name: str, value: bool | int | float | str) -> Call:
    signature = inspect.signature(getattr(call.function, "forward", call.function))
    bound = signature.bind(*call.args, **call.kwargs)
    bound.arguments[name] = value
    ordered = inspect.BoundArguments(
        signature,
        {n: bound.arguments[n] for n in signature.parameters if n in bound.arguments},  # type: ignore[arg-type]
    )
    return replace(call, args=ordered.args, kwargs=ordered.kwargs)


def _others(value: bool | int | float | str) -> tuple[bool | int | float | str, ...]:
    """Return two other values of an argument; one of a flag."""
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, str):
        return (f"{value}_", f"{value}__")
    return (value + 1, value + 2)


def _summary(calls: Sequence[CompiledCall], results: Sequence[CallResult]) -> list[tuple[str, Iterable[str]]]:
    again = sum(bool(result.again) for result in results)
    return [("", [f"calls: {len(calls)}, compiled again: {again}"])]


def _of_calls(calls: Sequence[CompiledCall], results: Sequence[CallResult]) -> Iterator[tuple[str, Iterable[str]]]:
    for planned, result in zip(calls, results, strict=True):
        mode = {None: "", True: " (training)", False: " (evaluation)"}[planned.training]
        lines = [f"{planned.place}: {planned.text}{mode}"]
        for reasons in result.again:
            for reason in reasons:
                lines.append(f"compiled again: {_told(reason)}")
        if result.again and result.dynamic:
            lines.append(f"dynamic from now on: {', '.join(map(readable_guard, result.dynamic))}")
        if result.error is not None:
            lines.append(f"raises: {sentence(result.error)}")
        yield f"call {planned.number}", lines


def _of_repeated(reason: FailedReason | None) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the guard for which each repetition of a call is compiled again."""
    if reason is not None:
        yield "the same call", [f"each one is compiled again: {_told(reason)}"]


def _told(reason: FailedReason) -> str:
    """Return a guard that failed, with the line that needs it, and the function if that is not the target."""
    place = f"line {reason.line}" if reason.line else ""
    inside = "" if reason.parameters else f"in {reason.function}"
    where = ", ".join(part for part in (place, inside) if part)
    return f"{_failed_text(reason)} ({where})" if where else _failed_text(reason)


def _failed_text(reason: FailedReason) -> str:
    """Return a guard that failed as a clause: ``the guard `n == 3` fails``, or PyTorch's sentence."""
    text = readable_guard(reason.condition)
    return f"the guard `{text}` fails" if sources_in(reason.condition) else text


def _of_guards(guards: Sequence[CompiledGuard], traced: TracedCall) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the guards of the target's arguments, by the line of its file that needs them first."""
    lines: dict[int, dict[str, None]] = {}
    for guard in guards:
        frame = next((frame for frame in reversed(guard.stack) if frame.filename == traced.request.file), None)
        if frame is not None and frame.lineno is not None:
            lines.setdefault(frame.lineno, {}).update(dict.fromkeys(_conditions(guard)))
    source = traced.request.source.splitlines()
    rows = [(line, texts) for line, texts in sorted(lines.items()) if texts]
    if rows:
        yield "guards", ["of the first compilation, by the line that needs them"]
    for line, texts in rows:
        yield f"line {line}", [source[line - 1].strip() if line <= len(source) else "", *texts]


def _conditions(guard: CompiledGuard) -> Iterator[str]:
    """Yield the conditions of a guard that a call may fail to meet."""
    if not guard.source.startswith("L["):
        return
    if guard.kind == "TENSOR_MATCH":
        yield f"{readable_guard(guard.source)}: its dtype, device, sizes and requires_grad"
    elif guard.kind.endswith(("CONSTANT_MATCH", "EQUALS_MATCH")):
        yield from map(readable_guard, guard.conditions)


def _of_changes(changes: Sequence[ChangeResult], is_complete: bool) -> Iterator[tuple[str, Iterable[str]]]:
    yield (
        "what if",
        ["each change of one argument of call 1, in a second and a third call; those that raise are left out"],
    )
    for result in changes:
        yield result.change.parameter or "the call", [f"{result.change.what}: {_effect(result)}"]
    if not is_complete:
        yield "", ["Other changes were not tried: these took long enough."]


def _effect(result: ChangeResult) -> str:
    """Return in words what a change of an argument does."""
    if not result.times or result.cause is None:
        return "not compiled again"
    several = len(result.change.tries[0]) > 1
    guard = _told(result.cause)
    if several and result.times > 1:
        return f"each new one is compiled again: {guard}"
    if not several:
        return f"compiled again: {guard}"
    return f"compiled again once, then dynamic: {guard}"


def _of_cuda_graphs(traced: TracedCall, results: Sequence[CallResult]) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield why CUDA graphs do not capture operations of a target on a GPU, and when they are captured again."""
    rows = [*_uncaptured(traced)]
    sizes = dict.fromkeys(name for result in results for name in result.dynamic)
    if sizes:
        rows.append(("", [f"one more CUDA graph for each new value of {', '.join(map(readable_guard, sizes))}"]))
    if rows:
        yield "CUDA graphs", ['on a GPU with mode="reduce-overhead"']
    yield from rows


def _uncaptured(traced: TracedCall) -> Iterator[tuple[str, Iterable[str]]]:
    """Yield the operations that a CUDA graph does not capture, each with its line."""
    captured, names = traced.captured, traced.captured.names
    spans = {node.name: node.span for stage in traced.stages for node in stage.nodes}
    arguments = {item.name for item in captured.inputs if item.kind == "input"}
    for module in (captured.computing, captured.backward):
        for node in module.graph.nodes if module is not None and names is not None else ():
            reason = _why_uncaptured(node)
            if names is None or not reason or (node.target is _COPY and names[node.args[0]] not in arguments):
                continue
            span = spans.get(names[node])
            written = f" `{names[node.args[0]]}`" if node.target is _COPY else ""
            yield f"line {span.line}" if span is not None else names[node], [f"{reason.format(node.target)}{written}"]


def _why_uncaptured(node: fx.Node) -> str:
    """Return why a CUDA graph does not capture an operation; "" if it does."""
    if node.op != "call_function":
        return ""
    if node.target is _COPY and isinstance(node.args[0], fx.Node) and node.args[0].op == "placeholder":
        return "no CUDA graph, unless another one has computed it: the code modifies in place its argument"
    return "`{}` is not captured" if is_unsafe_in_cuda_graph(node) else ""


def _data(
    calls: Sequence[CompiledCall],
    results: Sequence[CallResult],
    repeated: FailedReason | None,
    changes: Sequence[ChangeResult],
) -> dict[str, Any]:
    """Return the page as plain data."""
    return {
        "calls": [
            {
                "call": planned.number,
                "place": planned.place,
                "arguments": planned.text,
                "compiled_again": [[asdict(reason) for reason in reasons] for reasons in result.again],
                "dynamic": list(result.dynamic),
                "error": sentence(result.error) if result.error is not None else None,
            }
            for planned, result in zip(calls, results, strict=True)
        ],
        "repeated": asdict(repeated) if repeated is not None else None,
        "changes": [
            {
                "parameter": result.change.parameter,
                "change": result.change.what,
                "compiled_again": result.times,
                "guard": asdict(result.cause) if result.cause is not None else None,
                "dynamic": list(result.dynamic),
            }
            for result in changes
        ],
    }


def _remarks(
    calls: Sequence[CompiledCall], results: Sequence[CallResult], repeated: FailedReason | None, traced: TracedCall
) -> Iterator[Remark]:
    """Yield a remark on each parameter for which calls of the project are compiled again, and on the code that changes
    what it depends on.
    """
    spans = _parameter_spans(traced)
    if repeated is not None and (span := _line_of(repeated, traced)) is not None:
        yield RECOMPILES_EACH_TIME.remark(span, reason=_failed_text(repeated))
    causes: dict[str, list[tuple[CompiledCall, FailedReason]]] = {}
    for planned, result in zip(calls, results, strict=True):
        if result.cause is not None:
            for parameter in result.cause.parameters:
                causes.setdefault(parameter, []).append((planned, result.cause))
    for parameter, items in causes.items():
        if parameter not in spans:
            continue
        planned, reason = items[0]
        times = f", and so on in {len(items)} of {len(calls)} calls" if len(items) > 1 else ""
        yield RECOMPILES.remark(
            spans[parameter],
            related=_related(reason, traced),
            parameter=parameter,
            reason=_failed_text(reason),
            place=planned.place,
            times=times,
        )


def _related(reason: FailedReason, traced: TracedCall) -> tuple[Related, ...]:
    span = _line_of(reason, traced)
    return () if span is None else (Related(span, "the code that needs the guard"),)


def _line_of(reason: FailedReason, traced: TracedCall) -> Span | None:
    """Return the line that needs a guard, if it is in the target's file."""
    lines = traced.request.source.splitlines()
    if reason.file != traced.request.file or not 0 < reason.line <= len(lines):
        return None
    text = lines[reason.line - 1]
    start = len(text[: len(text) - len(text.lstrip())].encode())
    return Span(reason.file, reason.line, start, reason.line, len(text.rstrip().encode()))


def _parameter_spans(traced: TracedCall) -> dict[str, Span]:
    """Return the places of a target's parameters in its definition, by name."""
    request = traced.request
    name = request.name if request.kind != "module" else f"{request.name}.forward"
    function: FunctionNode | None = find_function(parse(request.source, request.file), name)
    if function is None:
        return {}
    own = function.args
    arguments = [*own.posonlyargs, *own.args, *own.kwonlyargs]
    return {
        a.arg: Span(request.file, a.lineno, a.col_offset, a.lineno, a.col_offset + len(a.arg.encode()))
        for a in arguments
    }
