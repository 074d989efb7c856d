"""A pass of the user on a target: what it made of the graph, and what went wrong in it, on its own line."""

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

from fx_lsp.model import Pass, PassSource, Remark, Span, TraceRequest
from fx_lsp.tracer.capture.graphs import target_name, value_of
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.passes.pass_graphs import CannotRun, Given, NoGraph, example_values, fill_values, given
from fx_lsp.tracer.passes.pattern_matching import inputs_of, near_misses_of, partition, report, rewriting_of
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.program.load import LoadError, find, load
from fx_lsp.tracer.source.provenance import Sources
from fx_lsp.tracer.stages.ledger import Lane, Ledger, Origins, unchanged

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import Traced

AUTOMATIC = ("inference", "torch")
"""The graphs that a pass is tried on where none is named: the first that it changes or finds something in counts, else
the first that it raises on, else the first."""


class Wrong(Exception):
    """A pass cannot be run, or leaves a graph behind that is none; the message says what is wrong."""


@dataclass
class Bench:
    """A graph that passes work on, and the ledger that hears of it.

    `inputs` are what its placeholders hold, or None where that is not known: then it is not run. `found` is whether a
    matcher found anything; `running` is the name of what runs now and `code` its code where it is not the pass itself;
    `stage` and `title` are those that it would make. `broken` is whether the last graph says what is wrong with it.
    """

    request: TraceRequest
    sources: Sources
    mode: FakeTensorMode
    ledger: Ledger
    lane: Lane
    module: fx.GraphModule
    inputs: list[Any] | None
    found: bool = False
    running: str = ""
    stage: str = ""
    title: str = ""
    code: CodeType | None = None
    finished: list[str] = field(default_factory=list[str])
    broken: bool = False

    def runs(self, name: str, stage: str, title: str) -> None:
        """A pass begins."""
        self.running, self.stage, self.title = name, stage, title

    def took(self, result: fx.GraphModule, origins: Origins | None = None) -> None:
        """The pass has come to an end with a graph module. Raises Wrong where its graph is no good."""
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
        """What an exception of the user's code says, as the end of a sentence that begins with the code's name."""
        text, kind = self._explained(error), type(error).__name__
        if text.startswith("the code "):
            return text.removeprefix("the code ")
        return f"raised {text if text.startswith(kind) else f'{kind}: {text}'}"

    def _explained(self, error: BaseException) -> str:
        """What an exception says, and what the nodes that it names are called here."""
        text, shown = sentence(error).removesuffix(" of"), self._shown()
        named = [word for word in dict.fromkeys(re.findall(r"\w+", text)) if shown.get(word, word) != word]
        return f"{text} ({', '.join(f'{word} is {shown[word]}' for word in named)})" if named else text

    def _shown(self) -> dict[str, str]:
        """What the nodes that torch calls so are called here: those that there were before the pass."""
        return {row.node.name: self.lane.names[row.node] for row in self.lane.rows}

    def _called(self, node: fx.Node) -> str:
        return f"{self._shown().get(node.name, node.name)} = {target_name(node.target)}(…)"

    def _inputs_of(self, graph: fx.Graph, given: list[Any]) -> list[Any]:
        """What the inputs of a rewritten graph hold. Raises ValueError for one that nothing gives."""
        nodes = [n for n in graph.nodes if n.op == "placeholder"]
        if len(nodes) == len(given):
            return given
        known = {row.node.name: value_of(row.node) for row in self.lane.rows if row.node.op == "placeholder"}
        more = [n.name for n in nodes if n.name not in known and not n.args]
        if more:
            raise ValueError(f"nothing gives it the input {more[0]}")
        return [known[n.name] if n.name in known else n.args[0] for n in nodes]

    def _keep(self, result: fx.GraphModule, note: str, origins: Origins | None) -> None:
        self.broken = bool(note)
        self.ledger.step(self.lane, self.stage, self.title, result.graph, note, origins)


def run_pass(traced: Traced) -> Ledger:
    """The stages of one pass on a target: the graph that it was given, and that after it, or after each of its steps.

    `on` names the graph. Raises NoGraph where there is none.
    """
    source = traced.request.passes[0]
    wanted = traced.options.get("on")
    tried = [_tried(traced, source, name) for name in ((wanted,) if wanted else AUTOMATIC)]
    first, *others = tried
    if first.failed or first.useful:
        chosen = next((t for t in others if first.failed and t.useful and not t.failed), first)
        return chosen.ledger
    for other in others:
        if other.useful and not other.failed:
            return other.ledger
        if other.failed and first.ledger.infos[-1].nodes:
            error = next(r.message for r in other.ledger.remarks if r.severity == "error")
            note = f"it finds nothing to do here; on the graph as written ({other.name}), {error}"
            first.ledger.infos[-1] = replace(first.ledger.infos[-1], note=note)
    return first.ledger


@dataclass(frozen=True)
class _Tried:
    """A pass on the graph `name`: whether something went wrong, and whether it changed or found anything."""

    name: str
    ledger: Ledger
    failed: bool
    useful: bool


def _tried(traced: Traced, source: PassSource, name: str) -> _Tried:
    ledger = Ledger("check" in traced.options)
    try:
        bench = _bench(traced, ledger, name)
    except NoGraph:
        raise
    except (Exception, SystemExit) as error:
        ledger.text(name, "the graph to run it on", note=f"it cannot be made: {sentence(error)}")
        return _Tried(name, ledger, False, False)
    fine = run_on(bench, source)
    return _Tried(name, ledger, not fine, bench.found or any(info.change for info in ledger.infos))


def apply_configured(traced: Traced, ledger: Ledger) -> None:
    """The passes that the project's settings name, one after the other, on the ATen graph of the target."""
    if not traced.request.passes:
        return
    bench = _bench(traced, ledger, "inference")
    for source in traced.request.passes:
        if not run_on(bench, source):
            return


def _bench(traced: Traced, ledger: Ledger, name: str) -> Bench:
    made: Given = given(traced, name)
    lane = ledger.begin(name, made.title, made.module.graph, made.names)
    inputs = example_values(made.module.graph)
    return Bench(traced.request, traced.sources, traced.mode, ledger, lane, made.module, inputs)


def run_on(bench: Bench, source: PassSource) -> bool:
    """Run a pass on the bench's graph; False where something went wrong, which is said at the pass's line then."""
    found = source.found
    bench.runs(found.name, f"pass:{found.name}", f"{_KINDS[found.kind]} {found.name}")
    try:
        with forbid_effects():
            subject, *more = [_load(bench.request, source, name) for name in (found.name, *found.uses)]
            _RUN[found.kind](bench, subject, more)
    except (Exception, SystemExit) as error:
        _blame(bench, found, error)
        return False
    return True


def _load(request: TraceRequest, source: PassSource, name: str) -> Any:
    """An object of the pass's file. What it makes at its top level is real: no model is meant to be there."""
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
    """What the pass `name` answered, as a graph module: `None` and flags say that it changed the one it was given.

    Raises Wrong for what is no answer of a pass.
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
        f"{name} returns a {type(result).__name__}; a pass returns a GraphModule, a Graph, a PassResult or None"
    )


def _made(bench: Bench, subject: Any, *arguments: Any) -> Any:
    """An object of a pass's class. Raises Wrong where its constructor needs to be given more."""
    try:
        inspect.signature(subject).bind(*arguments)
    except TypeError as error:
        name = bench.running
        what = "more than the graph module" if arguments else "arguments"
        way = "" if arguments else f", or write `{name.lower()} = {name}(…)` and run that"
        raise Wrong(f"the constructor of {name} takes {what} ({error}): give it a default{way}") from None
    return subject(*arguments)


def _transformer(bench: Bench, subject: Any, more: list[Any]) -> None:
    if not issubclass(subject, fx.Transformer):
        _function(bench, _made(bench, subject), more)
        return
    transformer = _made(bench, subject, bench.module)
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
    found = near_misses_of(bench.module.graph, pattern, filters, bench.lane.names)
    bench.found |= bool(found.matches)
    report(bench.ledger, bench.lane, found, f"{bench.stage}:matches", f"where {bench.title} matches")
    taken, given = found.inputs, inputs_of(replacement)
    if found.matches and taken != given:
        what = f"{bench.running} takes {taken} inputs and its replacement {given}"
        raise Wrong(f"{what}; a replacement takes the inputs of its pattern, in their order")
    from torch.fx.subgraph_rewriter import replace_pattern_with_filters

    replace_pattern_with_filters(bench.module, pattern, replacement, filters)
    bench.took(bench.module)


def _matcher(bench: Bench, subject: Any, more: list[Any]) -> None:
    found = near_misses_of(bench.module.graph, subject, [], bench.lane.names)
    bench.found |= bool(found.matches)
    report(bench.ledger, bench.lane, found, f"{bench.stage}:matches", f"where {bench.title} matches")


def _support(bench: Bench, subject: Any, more: list[Any]) -> None:
    support = _made(bench, subject) if inspect.isclass(subject) else subject
    found, fuse = partition(bench.module, support)
    bench.found |= bool(found.matches)
    report(bench.ledger, bench.lane, found, f"{bench.stage}:partitions", f"the partitions of {bench.title}")
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
    """The code of a pass that a manager runs: of a function, or of the method of an object."""
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


def _blame(bench: Bench, found: Pass, error: BaseException) -> None:
    """Say what a pass raised, at its own line."""
    reason = error
    while type(reason) is Exception and reason.__cause__ is not None:  # what a pass manager makes of an exception
        reason = reason.__cause__
    message = str(reason) if isinstance(reason, Wrong) else f"{bench.running} {bench.raised(reason)}"
    cause = reason.__cause__ if isinstance(reason, Wrong) and reason.__cause__ is not None else reason
    chain = bench.sources.traceback_chain(cause.__traceback__)
    span = next((span for span in chain if span.file == found.file), None)
    if span is None and bench.code is not None and bench.code.co_filename == found.file:
        line = bench.code.co_firstlineno
        span = Span(found.file, line, 0, line, 0)
    bench.ledger.remarks.append(Remark(message, span or found.name_span, "error"))
    if not bench.broken:
        name = bench.stage if bench.stage.endswith((":check", ":error")) else f"{bench.stage}:error"
        bench.ledger.text(name, bench.title, "", bench.lane.stage, message)
