"""Run a user's pass on a target: its resulting graph, and its exceptions, on its own lines."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from types import CodeType
from typing import TYPE_CHECKING, Any

from torch import fx

from fx_lsp.messages.analyses import PASS_RAISED
from fx_lsp.model import Pass, PassSource, Remark, Span, TraceRequest
from fx_lsp.tracer.capture.graphs import target_name
from fx_lsp.tracer.capture.node_values import value_of
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.passes.pass_graphs import CannotRun, NoGraph, example_values, fill_values, pass_graph
from fx_lsp.tracer.passes.pattern_matching import Matches, inputs_of, near_misses_of, partition, report, rewriting_of
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.program.load import LoadError, find, load
from fx_lsp.tracer.source.provenance import Sources
from fx_lsp.tracer.stages.ledger import Heading, Lane, Ledger, Origins, unchanged

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

AUTOMATIC = ("inference", "torch")
"""The graphs that a pass is tried on by default: the first that it changes or matches counts, else the first that it
raises on, else the first.
"""


class Wrong(Exception):
    """A pass cannot run, or its result is not a valid graph; the message explains it."""


@dataclass
class Bench:
    """Hold a graph that passes work on, and the ledger that records it.

    `inputs` are the values of its placeholders, or None if one is unknown: then it does not run. `matched` is True once
    a pattern matched; `running` is the name of the running code and `code` its code object if it is not the pass
    itself; `stage` and `title` are those of its result. `broken` is True if the last graph has a note on an error.
    """

    request: TraceRequest
    sources: Sources
    mode: FakeTensorMode
    ledger: Ledger
    lane: Lane
    module: fx.GraphModule
    inputs: list[Any] | None
    matched: bool = False
    running: str = ""
    stage: str = ""
    title: str = ""
    code: CodeType | None = None
    finished: list[str] = field(default_factory=list[str])
    broken: bool = False

    def runs(self, name: str, stage: str, title: str) -> None:
        """Record that a pass begins."""
        self.running, self.stage, self.title = name, stage, title

    def took(self, result: fx.GraphModule, origins: Origins | None = None) -> None:
        """Record the resulting graph module of the pass. Raises Wrong if its graph is invalid."""
        self.module = result
        same = unchanged(self.lane.rows, result.graph, origins)
        try:
            result.graph.lint()
        except Exception as error:
            reason = self._explained(error)
            self._keep(result, f"the graph is broken: {reason}", origins)
            raise Wrong(f"{self.running} leaves a broken graph behind: {reason}") from error
        try:
            result.recompile()
            if self.inputs is not None:
                fill_values(result, self._inputs_of(result.graph, self.inputs), self.mode, same)
        except Exception as error:
            at = error.node if isinstance(error, CannotRun) else None
            cause = error.__cause__ if isinstance(error, CannotRun) and error.__cause__ is not None else error
            reason = self._explained(cause) if at is None else f"{self._called(at)}: {self._explained(cause)}"
            self._keep(result, f"the graph cannot be run: {reason}", origins)
            raise Wrong(f"the graph that {self.running} leaves behind cannot be run: {reason}") from error
        self._keep(result, "", origins)
        self.finished.append(self.running)

    def raised(self, error: BaseException) -> str:
        """Return an exception of the user's code as the end of a sentence that begins with the code's name."""
        text, kind = self._explained(error), type(error).__name__
        if text.startswith("the code "):
            return text.removeprefix("the code ")
        return f"raised {text if text.startswith(kind) else f'{kind}: {text}'}"

    def _explained(self, error: BaseException) -> str:
        """Return the message of an exception, with the displayed names of the nodes in it."""
        text, shown = sentence(error).removesuffix(" of"), self._shown()
        named = [word for word in dict.fromkeys(re.findall(r"\w+", text)) if shown.get(word, word) != word]
        return f"{text} ({', '.join(f'{word} is {shown[word]}' for word in named)})" if named else text

    def _shown(self) -> dict[str, str]:
        """Return the displayed names of the nodes before the pass, by torch's names."""
        return {row.node.name: self.lane.names[row.node] for row in self.lane.rows}

    def _called(self, node: fx.Node) -> str:
        return f"{self._shown().get(node.name, node.name)} = {target_name(node.target)}(…)"

    def _inputs_of(self, graph: fx.Graph, inputs: list[Any]) -> list[Any]:
        """Return the values of a rewritten graph's inputs. Raises ValueError for an input without one."""
        nodes = [n for n in graph.nodes if n.op == "placeholder"]
        if len(nodes) == len(inputs):
            return inputs
        values = {row.node.name: value_of(row.node) for row in self.lane.rows if row.node.op == "placeholder"}
        more = [n.name for n in nodes if n.name not in values and not n.args]
        if more:
            raise ValueError(f"no value is passed for its input {more[0]}")
        return [values[n.name] if n.name in values else n.args[0] for n in nodes]

    def _keep(self, result: fx.GraphModule, note: str, origins: Origins | None) -> None:
        self.broken = bool(note)
        self.ledger.step(self.lane, Heading(self.stage, self.title, note), result.graph, origins)


def run_pass(traced: TracedCall) -> Ledger:
    """Return the stages of one pass on a target: the graph before it, and that after it, or after each of its steps.

    `on` names the graph. Raises NoGraph if there is none.
    """
    return run_pass_with(traced, lambda: Ledger("check" in traced.options))


def run_pass_with(traced: TracedCall, new_ledger: Callable[[], Ledger]) -> Ledger:
    """Return the stages of one pass like `run_pass`, in a new ledger for each graph that it runs on."""
    source = traced.request.passes[0]
    wanted = traced.options.get("on")
    runs = [_run_on_graph(traced, source, name, new_ledger()) for name in ((wanted,) if wanted else AUTOMATIC)]
    first, *others = runs
    if first.failed or first.useful:
        chosen = next((t for t in others if first.failed and t.useful and not t.failed), first)
        return chosen.ledger
    for other in others:
        if other.useful and not other.failed:
            return other.ledger
        if other.failed and first.ledger.infos[-1].nodes:
            error = next(r.message for r in other.ledger.remarks if r.severity == "error")
            note = f"it has no effect on this graph; on the graph as written ({other.name}), {error}"
            first.ledger.infos[-1] = replace(first.ledger.infos[-1], note=note)
    return first.ledger


@dataclass(frozen=True)
class _PassRun:
    """Hold a pass on the graph `name`: whether it failed, and whether it changed or matched anything."""

    name: str
    ledger: Ledger
    failed: bool
    useful: bool


def _run_on_graph(traced: TracedCall, source: PassSource, name: str, ledger: Ledger) -> _PassRun:
    try:
        bench = _bench(traced, ledger, name)
    except NoGraph:
        raise
    except (Exception, SystemExit) as error:
        ledger.text(name, "the graph to run it on", note=f"it cannot be constructed: {sentence(error)}")
        return _PassRun(name, ledger, False, False)
    fine = run_on(bench, source)
    return _PassRun(name, ledger, not fine, bench.matched or any(info.change for info in ledger.infos))


def apply_configured(traced: TracedCall, ledger: Ledger) -> None:
    """Run the passes in the project's settings, one after the other, on the ATen graph of the target."""
    if not traced.request.passes:
        return
    bench = _bench(traced, ledger, "inference")
    for source in traced.request.passes:
        if not run_on(bench, source):
            return


def _bench(traced: TracedCall, ledger: Ledger, name: str) -> Bench:
    graph = pass_graph(traced, name)
    lane = ledger.begin(Heading(name, graph.title), graph.module.graph, graph.names)
    inputs = example_values(graph.module.graph)
    return Bench(traced.request, traced.sources, traced.mode, ledger, lane, graph.module, inputs)


def run_on(bench: Bench, source: PassSource) -> bool:
    """Run a pass on the bench's graph; False if it failed, with a remark at the pass's line."""
    user_pass = source.found
    bench.runs(user_pass.name, f"pass:{user_pass.name}", f"{_KINDS[user_pass.kind]} {user_pass.name}")
    try:
        with forbid_effects():
            subject, *more = [_load(bench.request, source, name) for name in (user_pass.name, *user_pass.uses)]
            _RUN[user_pass.kind](bench, subject, more)
    except (Exception, SystemExit) as error:
        _blame(bench, user_pass, error)
        return False
    return True


def _load(request: TraceRequest, source: PassSource, name: str) -> Any:
    """Return an object of the pass's file. Tensors at its top level are real: no model is expected there."""
    wanted = replace(
        request,
        file=source.found.file,
        name=name,
        source=source.source,
        sliced=source.sliced,
        module=source.module,
        package=source.package,
        roots=source.roots,
        overlays={},
    )
    try:
        return find(load(wanted, nullcontext(), with_stand_ins=False).module, name)
    except (LoadError, SystemExit) as error:
        cause = error.__cause__ if isinstance(error, LoadError) and error.__cause__ is not None else error
        raise Wrong(f"{source.found.name} cannot be loaded: {sentence(cause)}") from cause


def _function(bench: Bench, subject: Any, more: list[Any]) -> None:
    bench.took(graph_module_of(subject(bench.module), bench.module, bench.running))


def graph_module_of(result: Any, module: fx.GraphModule, name: str) -> fx.GraphModule:
    """Return the result of the pass `name` as a graph module; `None` and flags mean that it changed `module`.

    Raises Wrong for an invalid result.
    """
    result = getattr(result, "graph_module", result)
    if isinstance(result, tuple) and result and isinstance(result[0], (fx.GraphModule, fx.Graph)):
        result = result[0]
    if result is None or isinstance(result, (bool, int)):
        return module
    if isinstance(result, fx.Graph):
        return module if result is module.graph else fx.GraphModule(module, result)
    if isinstance(result, fx.GraphModule):
        return result
    raise Wrong(
        f"{name} returns a {type(result).__name__}; a pass must return a GraphModule, a Graph, a PassResult or None"
    )


def _instance(bench: Bench, subject: Any, *arguments: Any) -> Any:
    """Return an instance of a pass's class. Raises Wrong if its constructor needs more arguments."""
    try:
        inspect.signature(subject).bind(*arguments)
    except TypeError as error:
        name = bench.running
        needed = "more arguments than the graph module" if arguments else "arguments"
        way = "" if arguments else f", or write `{name.lower()} = {name}(…)` and run that"
        raise Wrong(f"the constructor of {name} takes {needed} ({error}): add a default{way}") from None
    return subject(*arguments)


def _transformer(bench: Bench, subject: Any, more: list[Any]) -> None:
    if not issubclass(subject, fx.Transformer):
        _function(bench, _instance(bench, subject), more)
        return
    transformer = _instance(bench, subject, bench.module)
    origins: dict[str, str] = {}
    run_node = transformer.run_node

    def watched(n: fx.Node) -> Any:
        result = run_node(n)
        new = getattr(result, "node", None)
        if isinstance(new, fx.Node) and n.op not in ("placeholder", "output"):
            origins.setdefault(new.name, n.name)
        return result

    transformer.run_node = watched
    result = transformer.transform()
    old = {n.name: n for n in bench.module.graph.nodes}
    inputs = {n.target: n.name for n in old.values() if n.op == "placeholder"}
    for node in result.graph.nodes:
        if node.op == "placeholder" and node.target in inputs:
            origins[node.name] = inputs[node.target]
        elif node.op == "output":
            origins[node.name] = "output"
        if node.name in origins:
            node.meta = {**old[origins[node.name]].meta, **node.meta}
    bench.took(result, origins)


def _rewrite(bench: Bench, subject: Any, more: list[Any]) -> None:
    pattern, replacement, filters = rewriting_of(subject, more)
    matches = near_misses_of(bench.module.graph, pattern, filters, bench.lane.names)
    _report_matches(bench, matches)
    of_pattern, of_replacement = matches.inputs, inputs_of(replacement)
    if matches.groups and of_pattern != of_replacement:
        counts = f"{bench.running} takes {of_pattern} inputs and its replacement {of_replacement}"
        raise Wrong(f"{counts}; a replacement must take the inputs of its pattern, in the same order")
    from torch.fx.subgraph_rewriter import replace_pattern_with_filters

    replace_pattern_with_filters(bench.module, pattern, replacement, filters)
    bench.took(bench.module)


def _matcher(bench: Bench, subject: Any, more: list[Any]) -> None:
    _report_matches(bench, near_misses_of(bench.module.graph, subject, [], bench.lane.names))


def _report_matches(bench: Bench, matches: Matches) -> None:
    bench.matched |= bool(matches.groups)
    report(bench.ledger, bench.lane, matches, f"{bench.stage}:matches", f"where {bench.title} matches")


def _support(bench: Bench, subject: Any, more: list[Any]) -> None:
    support = _instance(bench, subject) if inspect.isclass(subject) else subject
    matches, fuse = partition(bench.module, support)
    bench.matched |= bool(matches.groups)
    report(bench.ledger, bench.lane, matches, f"{bench.stage}:partitions", f"the partitions of {bench.title}")
    bench.title = f"{bench.title}, partitions fused"
    bench.took(fuse())


def _manager(bench: Bench, subject: Any, more: list[Any]) -> None:
    name, stage, title = bench.running, bench.stage, bench.title
    if not getattr(subject, "_validated", True):
        (subject.solve_constraints if hasattr(subject, "solve_constraints") else subject.validate)()
    check = getattr(subject, "check", None)

    def watched(step: Any) -> Callable[[Any], Any]:
        called = step.__name__ if inspect.isfunction(step) else type(step).__name__

        def run(module: Any) -> Any:
            bench.runs(called, f"{stage}:{called}", f"pass {called} of {title}")
            bench.code = _code_of(step)
            result = step(module)
            bench.took(graph_module_of(result, module, called))
            bench.runs(name, f"{stage}:error", title)
            bench.code = None
            return result

        run.__name__ = called
        return run

    def checked(module: Any, check: Callable[[Any], None]) -> None:
        bench.runs(name, f"{stage}:check", f"check of {title}")
        try:
            check(module)
        except Exception as error:
            after = f"after {bench.finished[-1]}" if bench.finished else "before the first pass"
            raise Wrong(f"{after}, the check of {title} fails: {sentence(error)}") from error

    subject.passes = [watched(step) for step in subject.passes]
    if check is not None:
        subject.check = partial(checked, check=check)
        subject.run_checks_after_each_pass = True
    subject(bench.module)


def _code_of(step: Any) -> CodeType | None:
    """Return the code of a pass that a manager runs: of a function, or of the method of an object."""
    function = inspect.unwrap(step) if inspect.isfunction(step) else getattr(type(step), "call", None)
    return getattr(function, "__code__", None)


_RUN: dict[str, Callable[[Bench, Any, list[Any]], None]] = {
    "function": _function,
    "transformer": _transformer,
    "rewrite": _rewrite,
    "matcher": _matcher,
    "support": _support,
    "manager": _manager,
}
_KINDS = {
    "function": "pass",
    "transformer": "transformer",
    "rewrite": "rewriting",
    "matcher": "matcher",
    "support": "operator support",
    "manager": "pass manager",
}


def _blame(bench: Bench, user_pass: Pass, error: BaseException) -> None:
    """Add a remark on the exception of a pass, at its own line."""
    reason = error
    while type(reason) is Exception and reason.__cause__ is not None:  # a pass manager wraps exceptions
        reason = reason.__cause__
    is_wrong = isinstance(reason, Wrong)
    message = str(reason) if is_wrong else PASS_RAISED.message(code=bench.running, event=bench.raised(reason))
    cause = reason.__cause__ if isinstance(reason, Wrong) and reason.__cause__ is not None else reason
    chain = bench.sources.traceback_chain(cause.__traceback__)
    span = next((span for span in chain if span.file == user_pass.file), None)
    if span is None and bench.code is not None and bench.code.co_filename == user_pass.file:
        line = bench.code.co_firstlineno
        span = Span(user_pass.file, line, 0, line, 0)
    bench.ledger.remarks.append(Remark(message, span or user_pass.name_span, "error"))
    if not bench.broken:
        name = bench.stage if bench.stage.endswith((":check", ":error")) else f"{bench.stage}:error"
        bench.ledger.text(name, bench.title, "", bench.lane.stage, message)
