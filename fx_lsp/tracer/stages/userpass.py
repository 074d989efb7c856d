"""A pass of the user on a target: what it made of the graph, and what went wrong in it, on its own line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import fx

from fx_lsp.model import Pass, PassSource, Remark, TraceRequest
from fx_lsp.tracer.failures import sentence
from fx_lsp.tracer.guards import EffectBlocked, forbid_effects
from fx_lsp.tracer.load import find, load
from fx_lsp.tracer.stages.given import Given, example_values, fill_values, given
from fx_lsp.tracer.stages.ledger import Lane, Ledger, Origins
from fx_lsp.tracer.stages.matching import near_misses_of, partition, report
from fx_lsp.tracer.stages.rewriting import rewrite

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.works import Traced

AUTOMATIC = ("inference", "torch")
"""The graphs that a pass is tried on where none is named: the first that it changes or finds something in."""


class Broken(Exception):
    """A pass left a graph behind that is none; the message says what is wrong with it."""


@dataclass
class Bench:
    """A graph that passes work on, and the ledger that hears of it. `found` is whether a matcher found anything."""

    traced: Traced
    ledger: Ledger
    lane: Lane
    module: fx.GraphModule
    inputs: list[Any]
    found: bool = False
    running: str = ""
    finished: list[str] = field(default_factory=list[str])

    def took(self, name: str, title: str, result: fx.GraphModule, origins: Origins | None = None) -> None:
        """A pass has come to an end with a graph module. Raises Broken where its graph is no good."""
        self.module = result
        try:
            result.graph.lint()
        except Exception as error:
            self._keep(name, title, result, f"the graph is broken: {sentence(error)}", origins)
            raise Broken(f"{self.running} leaves a broken graph behind: {sentence(error)}") from error
        try:
            result.recompile()
            fill_values(result, self.inputs)
        except Exception as error:
            self._keep(name, title, result, f"the graph cannot be run: {sentence(error)}", origins)
            raise Broken(f"the graph that {self.running} leaves behind cannot be run: {sentence(error)}") from error
        self._keep(name, title, result, "", origins)
        self.finished.append(self.running)

    def _keep(self, name: str, title: str, result: fx.GraphModule, note: str, origins: Origins | None) -> None:
        self.ledger.step(self.lane, name, title, result.graph, note, origins)


def run_pass(traced: Traced) -> Ledger:
    """The stages of one pass on a target: the graph that it was given, and that after it, or after each of its steps.

    `on` names the graph. Raises ValueError where there is none, or the pass is not there.
    """
    source = traced.request.passes[0]
    wanted = traced.options.get("on")
    best: Ledger | None = None
    for name in (wanted,) if wanted else AUTOMATIC:
        ledger = Ledger("check" in traced.options)
        try:
            bench = _bench(traced, ledger, name)
        except ValueError:
            raise
        except (Exception, EffectBlocked) as error:
            ledger.text(name, "the graph to run it on", note=f"it cannot be made: {sentence(error)}")
            best = best or ledger
            continue
        try:
            _run(bench, source)
        except (Exception, EffectBlocked) as error:
            _blame(bench, source.found, error)
        if bench.found or any(info.change or info.note for info in ledger.infos[1:]):
            return ledger
        best = best or ledger
    assert best is not None
    return best


def apply_configured(traced: Traced, ledger: Ledger) -> None:
    """The passes that the project's settings name, one after the other, on the ATen graph of the target."""
    if not traced.request.passes:
        return
    bench = _bench(traced, ledger, "inference")
    for source in traced.request.passes:
        try:
            _run(bench, source)
        except (Exception, EffectBlocked) as error:
            _blame(bench, source.found, error)
            return


def _bench(traced: Traced, ledger: Ledger, name: str) -> Bench:
    made: Given = given(traced, name)
    lane = ledger.begin(name, made.title, made.module.graph, made.names)
    return Bench(traced, ledger, lane, made.module, example_values(made.module.graph))


def _run(bench: Bench, source: PassSource) -> None:
    found = source.found
    bench.running = found.name
    with forbid_effects():
        subject, *more = [_load(bench.traced.request, source, name) for name in (found.name, *found.uses)]
        stage, title = f"pass:{found.name}", f"{_KINDS[found.kind]} {found.name}"
        _RUN[found.kind](bench, stage, title, subject, more)


def _load(request: TraceRequest, source: PassSource, name: str) -> Any:
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
    from fx_lsp.tracer.fakes import fake_mode

    return find(load(wanted, fake_mode()).module, name)


def _function(bench: Bench, stage: str, title: str, subject: Any, more: list[Any]) -> None:
    bench.took(stage, title, graph_module_of(subject(bench.module), bench.module))


def graph_module_of(result: Any, module: fx.GraphModule) -> fx.GraphModule:
    """What a pass answered, as a graph module: `None` and flags say that it changed the one it was given.

    Raises TypeError for what is no answer of a pass.
    """
    result = getattr(result, "graph_module", result)
    if isinstance(result, tuple) and result and isinstance(result[0], fx.GraphModule):
        result = result[0]
    if result is None or isinstance(result, (bool, int)):
        return module
    if isinstance(result, fx.Graph):
        return module if result is module.graph else fx.GraphModule(module, result)
    if isinstance(result, fx.GraphModule):
        return result
    raise TypeError(f"a pass returns a GraphModule, a Graph, a PassResult or None, and not {type(result).__name__}")


def _transformer(bench: Bench, stage: str, title: str, subject: Any, more: list[Any]) -> None:
    if not issubclass(subject, fx.Transformer):
        _function(bench, stage, title, subject(), more)
        return
    transformer = subject(bench.module)
    origins: dict[str, str] = {}
    run_node = transformer.run_node

    def watched(n: fx.Node) -> Any:
        result = run_node(n)
        new = getattr(result, "node", None)
        if isinstance(new, fx.Node):
            origins.setdefault(new.name, n.name)
        return result

    transformer.run_node = watched
    result = transformer.transform()
    origins["output"] = "output"
    old = {n.name: n for n in bench.module.graph.nodes}
    for node in result.graph.nodes:
        if node.name in origins:
            node.meta = {**old[origins[node.name]].meta, **node.meta}
            if node.target != old[origins[node.name]].target:
                node.meta.pop("val", None)
        elif node.op.startswith("call_"):
            node.meta.pop("val", None)
    bench.took(stage, title, result, origins)


def _rewrite(bench: Bench, stage: str, title: str, subject: Any, more: list[Any]) -> None:
    pattern, replacement, filters = rewrite(subject, more)
    found = near_misses_of(bench.module.graph, pattern, filters)
    bench.found |= bool(found.matches)
    report(bench.ledger, bench.lane.names, found, f"{stage}:matches", f"where the pattern of {title} matches")
    from torch.fx.subgraph_rewriter import replace_pattern_with_filters

    replace_pattern_with_filters(bench.module, pattern, replacement, filters)
    bench.took(stage, title, bench.module)


def _matcher(bench: Bench, stage: str, title: str, subject: Any, more: list[Any]) -> None:
    found = near_misses_of(bench.module.graph, subject, [])
    bench.found |= bool(found.matches)
    report(bench.ledger, bench.lane.names, found, f"{stage}:matches", f"where {title} matches")


def _support(bench: Bench, stage: str, title: str, subject: Any, more: list[Any]) -> None:
    support = subject() if inspect.isclass(subject) else subject
    found, fuse = partition(bench.module, support)
    bench.found |= bool(found.matches)
    report(bench.ledger, bench.lane.names, found, f"{stage}:partitions", f"the partitions of {title}")
    bench.took(stage, f"{title}, partitions fused", fuse())


def _manager(bench: Bench, stage: str, title: str, subject: Any, more: list[Any]) -> None:
    if not getattr(subject, "_validated", True):
        subject.solve_constraints()
    check: Callable[[Any], None] = subject.check

    def watched(step: Any) -> Callable[[Any], Any]:
        name = step.__name__ if inspect.isfunction(step) else type(step).__name__

        def run(module: Any) -> Any:
            bench.running = name
            result = step(module)
            bench.took(f"{stage}:{name}", f"pass {name} of {title}", graph_module_of(result, module))
            return result

        run.__name__ = name
        return run

    def checked(module: Any) -> None:
        try:
            check(module)
        except Exception as error:
            after = f"after {bench.finished[-1]}" if bench.finished else "before the first pass"
            raise Broken(f"{after}, the check of {title} fails: {sentence(error)}") from error

    subject.passes = [watched(step) for step in subject.passes]
    subject.check = checked
    subject.run_checks_after_each_pass = True
    subject(bench.module)


_RUN: dict[str, Callable[[Bench, str, str, Any, list[Any]], None]] = {
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
    while reason.__cause__ is not None and not isinstance(reason, Broken):
        reason = reason.__cause__
    message = str(reason) if isinstance(reason, Broken) else f"{bench.running} raised {sentence(reason)}"
    cause = reason.__cause__ if isinstance(reason, Broken) and reason.__cause__ is not None else reason
    chain = bench.traced.sources.traceback_chain(cause.__traceback__)
    own_lines = [span for span in chain if span.file == found.file]
    span = own_lines[0] if own_lines else found.name_span
    bench.ledger.remarks.append(Remark(message, span, "error"))
    if not bench.ledger.infos[-1].note:
        bench.ledger.text(f"pass:{bench.running}:error", f"pass {bench.running}", "", bench.lane.stage, message)
