"""Where a pattern or a partitioner finds something in a graph, and where it almost does, with the reason why not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

from fx_lsp.model import Remark
from fx_lsp.tracer.graphs import Names, target_name
from fx_lsp.tracer.stages.ledger import Ledger


@dataclass(frozen=True)
class Miss:
    """A place that almost matches: the node where it begins, how many nodes did match, and why no more."""

    anchor: fx.Node
    matched: int
    node: fx.Node
    reason: str


@dataclass
class Found:
    """Groups of nodes that matched, and the places that almost did. `what` is the word for a group."""

    what: str
    matches: list[list[fx.Node]] = field(default_factory=list[list[fx.Node]])
    misses: list[Miss] = field(default_factory=list[Miss])


@dataclass
class _Trial:
    """The last thing that the matcher compared, and what did not fit."""

    matched: int = 0
    node: fx.Node | None = None
    reason: str = ""


def near_misses_of(graph: fx.Graph, pattern: Any, filters: Sequence[Callable[..., bool]]) -> Found:
    """The matches of a pattern (a function, a graph or a `SubgraphMatcher`) in `graph`, and its near misses."""
    matcher = pattern if isinstance(pattern, SubgraphMatcher) else _matcher(pattern)
    found = Found("match")
    taken: set[fx.Node] = set()
    for match in matcher.match(graph):
        nodes = [n for p, n in match.nodes_map.items() if p.op not in ("placeholder", "output")]
        refused = next((f for f in filters if not f(match, graph, matcher.pattern)), None)
        if refused is None:
            found.matches.append(_in_order(graph, nodes))
            taken.update(nodes)
        else:
            name = getattr(refused, "__name__", "a filter")
            found.misses.append(Miss(nodes[0], len(nodes), nodes[0], f"the filter {name} refuses the match"))
    refused_anchors = {miss.anchor for miss in found.misses}
    for anchor in _anchors(matcher):
        for node in graph.nodes:
            if node in taken or node in refused_anchors or node.op in ("placeholder", "output"):
                continue
            if (miss := _try(matcher, anchor, node, taken)) is not None:
                found.misses.append(miss)
    return found


def _matcher(pattern: Any) -> SubgraphMatcher:
    if isinstance(pattern, fx.GraphModule):
        pattern = pattern.graph
    graph = pattern if isinstance(pattern, fx.Graph) else fx.symbolic_trace(pattern).graph
    return SubgraphMatcher(graph, match_output=False, match_placeholder=False, remove_overlapping_matches=True)


def _anchors(matcher: SubgraphMatcher) -> list[fx.Node]:
    return [n for n in matcher.pattern_anchors if n.op not in ("placeholder", "output")]


def _try(matcher: SubgraphMatcher, anchor: fx.Node, node: fx.Node, taken: set[fx.Node]) -> Miss | None:
    """How far the pattern goes at `node`; None where its first node does not fit already, or all of it does."""
    if not _similar(anchor, node):
        return None
    trial = _Trial(0)
    match = InternalMatch(anchors=[anchor])
    with _watched(matcher, trial):
        whole = matcher._match_nodes(anchor, node, match)
    if not whole:
        assert trial.node is not None
        return Miss(node, trial.matched, trial.node, trial.reason)
    if matcher._is_contained(match.nodes_map):
        inside = [n for n in match.nodes_map.values() if n in taken]
        return Miss(node, len(match.nodes_map), inside[0], "it overlaps with another match") if inside else None
    for wanted, got in match.nodes_map.items():
        outside = [u for u in got.users if u not in match.nodes_map.values()]
        if wanted.op != "placeholder" and wanted not in matcher.pattern_returning_nodes and outside:
            reason = f"its result is also used by {outside[0].name}, outside of the pattern"
            return Miss(node, len(match.nodes_map), got, reason)
    return None


def _similar(anchor: fx.Node, node: fx.Node) -> bool:
    """Whether two nodes are meant to be the same: one operation, in whichever overload."""
    if anchor.op != node.op:
        return False
    return anchor.target == node.target or _packet(anchor.target) == _packet(node.target)


def _packet(target: Any) -> Any:
    return target.overloadpacket if isinstance(target, torch._ops.OpOverload) else target


class _watched:
    """Notes in `trial` where a matcher gives up."""

    def __init__(self, matcher: Any, trial: _Trial) -> None:
        self._matcher, self._trial = matcher, trial
        self._equal, self._literals, self._nodes = (
            matcher._nodes_are_equal,
            matcher._match_literals,
            matcher._match_nodes,
        )

    def __enter__(self) -> None:
        trial = self._trial

        def equal(wanted: fx.Node, got: fx.Node, *rest: Any) -> bool:
            fits = self._equal(wanted, got, *rest)
            if fits:
                trial.matched += wanted.op != "placeholder"
            else:
                trial.node, trial.reason = got, _difference(wanted, got)
            return fits

        def literals(wanted: Any, got: Any, match: Any) -> bool:
            fits = self._literals(wanted, got, match)
            if not fits:
                trial.reason = f"the pattern has {_shown(wanted)} where the graph has {_shown(got)}"
            return fits

        def nodes(wanted: fx.Node, got: fx.Node, match: Any, *rest: Any) -> bool:
            trial.node, trial.reason = got, ""
            fits = self._nodes(wanted, got, match, *rest)
            if not fits and not trial.reason:
                trial.node, trial.reason = got, _shape(wanted, got, match)
            return fits

        self._matcher._nodes_are_equal = equal
        self._matcher._match_literals = literals
        self._matcher._match_nodes = nodes

    def __exit__(self, *error: object) -> None:
        for name in ("_nodes_are_equal", "_match_literals", "_match_nodes"):
            del self._matcher.__dict__[name]


def _difference(wanted: fx.Node, got: fx.Node) -> str:
    if wanted.op != got.op:
        return f"the pattern has a {wanted.op} node ({target_name(wanted.target)}) here, and it is a {got.op} node"
    mine, theirs = target_name(wanted.target), target_name(got.target)
    if isinstance(wanted.target, torch._ops.OpOverloadPacket) and _packet(got.target) is wanted.target:
        return f"the pattern calls {wanted.target}, which stands for all overloads: write torch.ops.{theirs}"
    return f"the pattern calls {mine} here, and the graph calls {theirs}"


def _shape(wanted: fx.Node, got: fx.Node, match: Any) -> str:
    if wanted in match.nodes_map:
        return f"the pattern uses {wanted.name} again, where the graph uses another value"
    if got in match.nodes_map.values():
        return "the graph uses one value where the pattern has two"
    if len(wanted.args) != len(got.args) or list(wanted.kwargs) != list(got.kwargs):
        return f"the pattern gives it {_arguments(wanted)}, and the graph {_arguments(got)}"
    return "its arguments do not fit"


def _arguments(node: fx.Node) -> str:
    named = "".join(f", {name}=…" for name in node.kwargs)
    return f"{len(node.args)} arguments{named}"


def _shown(value: Any) -> str:
    return value.name if isinstance(value, fx.Node) else repr(value)


def partition(module: fx.GraphModule, support: Any) -> tuple[Found, Callable[[], fx.GraphModule]]:
    """The partitions of what `support` takes and the nodes beside them, and what fuses them into submodules."""
    partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
    partitions = partitioner.propose_partitions()
    found = Found("partition")
    inside: set[fx.Node] = set()
    for part in partitions:
        nodes = _in_order(module.graph, list(part.nodes))
        found.matches.append(nodes)
        inside.update(nodes)
    submodules = dict(module.named_modules())
    for node in module.graph.nodes:
        if node not in inside and node.op.startswith("call_"):
            taken = bool(support.is_node_supported(submodules, node))
            reason = "it would make a cycle of partitions" if taken else f"{target_name(node.target)} is not supported"
            found.misses.append(Miss(node, 0, node, reason))
    return found, lambda: partitioner.fuse_partitions(partitions)


def _in_order(graph: fx.Graph, nodes: list[fx.Node]) -> list[fx.Node]:
    place = {node: i for i, node in enumerate(graph.nodes)}
    return sorted(nodes, key=lambda n: place[n])


def report(ledger: Ledger, names: Names, found: Found, stage: str, title: str) -> None:
    """A page of what was found, and remarks at the places in the source that it came from."""
    lines: list[str] = []
    for number, nodes in enumerate(found.matches, 1):
        lines.append(f"# {found.what} {number}")
        lines += [f"    {_line(node, names)}" for node in nodes]
        chain = next((c for c in map(names.chain, reversed(nodes)) if c), ())
        if chain:
            text = f"{found.what} {number} of {stage.split(':')[1]}: {', '.join(names[n] for n in nodes)}"
            ledger.remarks.append(Remark(text, chain[0], "hint"))
    if not found.matches:
        lines.append(f"# there is no {found.what}")
    if found.misses:
        lines += ["", "# not taken" if found.what == "partition" else "# near misses"]
    for miss in found.misses:
        count = f", {miss.matched} nodes match" if miss.matched else ""
        at = "" if miss.node is miss.anchor else f" at {names[miss.node]}"
        lines += [f"    {_line(miss.anchor, names)}", f"        # {miss.reason}{at}{count}"]
    ledger.text(stage, title, "\n".join(lines) + "\n")


def _line(node: fx.Node, names: Names) -> str:
    inputs = ", ".join(names[n] for n in node.all_input_nodes)
    return f"{names[node]} = {target_name(node.target)}({inputs})"
