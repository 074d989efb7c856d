"""Find matches of a pattern or a partitioner in a graph, and near misses with their reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

from fx_lsp.messages.analyses import MATCHED
from fx_lsp.tracer.capture.graphs import Names, arguments_of, target_name
from fx_lsp.tracer.stages.ledger import Lane, Ledger

MAX_MISSES = 40
"""The most near misses that are shown."""


@dataclass(frozen=True)
class Miss:
    """Hold a place that almost matches: its first node, the misfit, and the reason.

    `fits` counts the fitting nodes out of the `of` nodes of the pattern; both are 0 without a pattern.
    """

    anchor: fx.Node
    node: fx.Node
    reason: str
    fits: int = 0
    of: int = 0


@dataclass
class Matches:
    """Hold groups of nodes that matched, and near misses; `inputs` is the number of a pattern's inputs.

    `kind` is the word for one match, `nothing` the end of a sentence if there is neither.
    """

    kind: str
    groups: list[list[fx.Node]] = field(default_factory=list[list[fx.Node]])
    misses: list[Miss] = field(default_factory=list[Miss])
    nothing: str = ""
    inputs: int = 0


@dataclass
class _MatchAttempt:
    """Hold the nodes that the matcher compares, outermost first, those that are the `same` operation, and the
    misfit. `size` is the number of nodes of the pattern.
    """

    names: Names
    size: int
    path: list[fx.Node] = field(default_factory=list[fx.Node])
    same: set[fx.Node] = field(default_factory=set[fx.Node])
    node: fx.Node | None = None
    reason: str = ""

    def fails(self, node: fx.Node, reason: str) -> None:
        if self.node is None:
            self.node, self.reason = node, reason


def near_misses_of(graph: fx.Graph, pattern: Any, filters: Sequence[Callable[..., bool]], names: Names) -> Matches:
    """Return the matches of a pattern (a function, a graph or a `SubgraphMatcher`) in `graph`, and its near misses."""
    matcher = pattern if isinstance(pattern, SubgraphMatcher) else _matcher(pattern)
    matches = Matches("match", inputs=len(matcher.pattern_placeholder_nodes))
    matched: set[fx.Node] = set()
    size = sum(map(_is_part, matcher.pattern.nodes))
    for match in matcher.match(graph):
        nodes = _in_order(graph, [n for p, n in match.nodes_map.items() if _is_part(p)])
        refused = next((f for f in filters if not f(match, graph, matcher.pattern)), None)
        if refused is None:
            matches.groups.append(nodes)
            matched.update(nodes)
        else:
            reason = f"the filter {getattr(refused, '__name__', type(refused).__name__)} rejects the match"
            matches.misses.append(Miss(nodes[-1], nodes[-1], reason, size, size))
    refused_anchors = {miss.anchor for miss in matches.misses}
    anchors = [n for n in matcher.pattern_anchors if _is_part(n)]
    for anchor in anchors:
        for node in filter(_is_part, graph.nodes):
            if node in matched or node in refused_anchors or not _similar(anchor, node):
                continue
            if (miss := _try(matcher, anchor, node, matched, _MatchAttempt(names, size))) is not None:
                matches.misses.append(miss)
    if anchors and not matches.groups and not matches.misses:
        matches.nothing = f": no node calls {target_name(anchors[0].target)}, the last operation of the pattern"
    return matches


def _is_part(node: fx.Node) -> bool:
    """Return True if a node of a pattern matches a specific node of the graph, not any value."""
    return node.op not in ("placeholder", "output")


def rewriting_of(subject: Any, more: list[Any]) -> tuple[Any, Any, list[Callable[..., bool]]]:
    """Return pattern, replacement and filters of a tuple `(pattern, replacement, filters…)`, or of its separate parts.

    Raises TypeError without a replacement.
    """
    parts = [*subject, *more] if isinstance(subject, (tuple, list)) else [subject, *more]
    if len(parts) < 2:
        raise TypeError("a rewrite needs a pattern and a replacement")
    pattern, replacement, *rest = parts
    filters = [f for item in rest for f in (item if isinstance(item, (tuple, list)) else [item])]
    return pattern, replacement, filters


def inputs_of(replacement: Any) -> int:
    """Return the number of inputs of a pattern or a replacement."""
    return sum(n.op == "placeholder" for n in _graph(replacement).nodes)


def _graph(pattern: Any) -> fx.Graph:
    if isinstance(pattern, fx.GraphModule):
        return pattern.graph
    return pattern if isinstance(pattern, fx.Graph) else fx.symbolic_trace(pattern).graph


def _matcher(pattern: Any) -> SubgraphMatcher:
    return SubgraphMatcher(
        _graph(pattern), match_output=False, match_placeholder=False, remove_overlapping_matches=True
    )


def _try(
    matcher: SubgraphMatcher, anchor: fx.Node, node: fx.Node, matched: set[fx.Node], attempt: _MatchAttempt
) -> Miss | None:
    """Try the pattern at `node`, which is not a match; return None if all of it fits."""
    match, size = InternalMatch(anchors=[anchor]), attempt.size
    with _watched(matcher, attempt):
        whole = matcher._match_nodes(anchor, node, match)
    if not whole:
        fits = len(attempt.same - {attempt.node})
        return Miss(node, attempt.node or node, attempt.reason or "its arguments do not fit", fits, size)
    parts = {n: p for p, n in match.nodes_map.items() if _is_part(p)}
    for got, wanted in parts.items():
        outside = [u for u in got.users if u not in parts]
        if outside and wanted not in matcher.pattern_returning_nodes:
            reason = f"its result is also used by {attempt.names[outside[0]]}, which is outside of the pattern"
            return Miss(node, got, reason, len(parts), size)
    inside = next((n for n in parts if n in matched), None)
    return None if inside is None else Miss(node, inside, "it is already in another match", len(parts), size)


def _similar(anchor: fx.Node, node: fx.Node) -> bool:
    """Return True if two nodes are the same operation, in any overload, as a function or a method."""
    if anchor.op != node.op:
        return {anchor.op, node.op} == {"call_function", "call_method"} and _word(anchor) == _word(node)
    return anchor.target == node.target or _packet(anchor.target) == _packet(node.target)


def _packet(target: Any) -> Any:
    return target.overloadpacket if isinstance(target, torch._ops.OpOverload) else target


def _word(node: fx.Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


class _watched:
    """Record in `attempt` where a matcher stops."""

    def __init__(self, matcher: Any, attempt: _MatchAttempt) -> None:
        self._matcher, self._attempt = matcher, attempt
        self._equal, self._literals, self._nodes = (
            matcher._nodes_are_equal,
            matcher._match_literals,
            matcher._match_nodes,
        )

    def __enter__(self) -> None:
        attempt, names = self._attempt, self._attempt.names

        def equal(wanted: fx.Node, got: fx.Node, *rest: Any) -> bool:
            fits = self._equal(wanted, got, *rest)
            if not fits:
                attempt.fails(got, _difference(wanted, got))
            elif _is_part(wanted):
                attempt.same.add(got)
            return fits

        def literals(wanted: Any, got: Any, match: Any) -> bool:
            fits = self._literals(wanted, got, match)
            if not fits and not self._matcher.ignore_literals:
                reason = f"the pattern has {_pattern_value(wanted)} but the graph has {_graph_value(got, names)}"
                attempt.fails(attempt.path[-1], reason)
            return fits

        def nodes(wanted: fx.Node, got: fx.Node, match: Any, *rest: Any) -> bool:
            reader = attempt.path[-1] if attempt.path else got
            again = match.nodes_map.get(wanted)
            other = next((p for p, n in match.nodes_map.items() if n is got and p is not wanted), None)
            attempt.path.append(got)
            fits = self._nodes(wanted, got, match, *rest)
            attempt.path.pop()
            if fits:
                return True
            if again is not None:
                reason = f"the pattern has one value, its {wanted.name}, but the graph has {{}} and {names[got]}"
                attempt.fails(reader, reason.format(_graph_value(again, names)))
            elif other is not None:
                reason = f"the pattern has two values, its {other.name} and its {wanted.name}, but the graph has {{}}"
                attempt.fails(reader, reason.format(f"{names[got]} twice"))
            else:
                attempt.fails(got, _shape(wanted, got))
            return False

        self._matcher._nodes_are_equal = equal
        self._matcher._match_literals = literals
        self._matcher._match_nodes = nodes

    def __exit__(self, *error: object) -> None:
        for name in ("_nodes_are_equal", "_match_literals", "_match_nodes"):
            del self._matcher.__dict__[name]


def _difference(wanted: fx.Node, got: fx.Node) -> str:
    mine, theirs = target_name(wanted.target), target_name(got.target)
    if got.op == "placeholder":
        return f"the pattern has {mine} here, but the graph has an input"
    if wanted.op != got.op:
        return f"the pattern has {_KINDS[wanted.op]} {mine} here, but the graph has {_KINDS[got.op]} {theirs}"
    if isinstance(wanted.target, torch._ops.OpOverloadPacket) and _packet(got.target) is wanted.target:
        return f"the pattern has {wanted.target}, which means all overloads: write torch.ops.{theirs}"
    return f"the pattern has {mine} here, but the graph has {theirs}"


_KINDS = {
    "call_function": "the function",
    "call_method": "the method",
    "call_module": "the module",
    "get_attr": "the attribute",
    "output": "the output",
}


def _shape(wanted: fx.Node, got: fx.Node) -> str:
    mine, theirs = _arguments(wanted), _arguments(got)
    return "its arguments do not fit" if mine == theirs else f"the pattern passes {mine} to it, but the graph {theirs}"


def _arguments(node: fx.Node) -> str:
    named = "".join(f", {name}=…" for name in node.kwargs)
    return f"{len(node.args)} argument{'s' * (len(node.args) != 1)}{named}"


def _pattern_value(value: Any) -> str:
    """Return a value of a pattern as text."""
    return f"a value, its {value.name}," if isinstance(value, fx.Node) else repr(value)


def _graph_value(value: Any, names: Names) -> str:
    """Return a value of the graph as text."""
    return names[value] if isinstance(value, fx.Node) else repr(value)


def partition(module: fx.GraphModule, support: Any) -> tuple[Matches, Callable[[], fx.GraphModule]]:
    """Return the partitions of the nodes that `support` accepts, with the other nodes, and a function that
    fuses them.
    """
    partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
    partitions = partitioner.propose_partitions()
    matches = Matches("partition")
    inside: set[fx.Node] = set()
    for part in partitions:
        nodes = _in_order(module.graph, list(part.nodes))
        matches.groups.append(nodes)
        inside.update(nodes)
    submodules = dict(module.named_modules())
    for node in module.graph.nodes:
        if node not in inside and node.op.startswith("call_"):
            is_supported = bool(support.is_node_supported(submodules, node))
            reason = (
                "it would create a cycle of partitions"
                if is_supported
                else f"{target_name(node.target)} is not supported"
            )
            matches.misses.append(Miss(node, node, reason))
    return matches, lambda: partitioner.fuse_partitions(partitions)


def _in_order(graph: fx.Graph, nodes: list[fx.Node]) -> list[fx.Node]:
    place = {node: i for i, node in enumerate(graph.nodes)}
    return sorted(nodes, key=lambda n: place[n])


def report(ledger: Ledger, lane: Lane, matches: Matches, stage: str, title: str) -> None:
    """Add a page of matches and misses, comments at the nodes of the graph, and remarks at their expressions."""
    names, lines, marks = lane.names, list[str](), list[tuple[str, str]]()
    for number, nodes in enumerate(matches.groups, 1):
        label = f"{matches.kind} {number}"
        lines += [f"# {label}", *(f"    {_line(node, names)}" for node in nodes)]
        marks += [(names[node], label) for node in nodes]
        chain = next((c for c in map(names.chain, reversed(nodes)) if c), ())
        if chain:
            matcher, matched = stage.split(":")[1], ", ".join(names[n] for n in nodes)
            ledger.remarks.append(MATCHED.remark(chain[0], label=label, matcher=matcher, nodes=matched))
    if not matches.groups:
        lines.append(f"# there is no {matches.kind}" + matches.nothing)
    if matches.misses:
        lines += ["", "# not taken" if matches.kind == "partition" else "# near misses"]
    for miss in matches.misses[:MAX_MISSES]:
        at = "" if miss.node is miss.anchor else f"{_line(miss.node, names)}: "
        fits = f" ({miss.fits} of {miss.of} nodes fit)" if miss.of else ""
        lines += [f"    {_line(miss.anchor, names)}", f"        # {at}{miss.reason}{fits}"]
        if miss.of:
            marks.append((names[miss.node], f"near miss: {miss.reason}"))
    if len(matches.misses) > MAX_MISSES:
        lines.append(f"    # … and {len(matches.misses) - MAX_MISSES:,} more")
    ledger.mark(lane.stage, marks)
    ledger.text(stage, title, "\n".join(lines) + "\n")


def _line(node: fx.Node, names: Names) -> str:
    if node.op == "placeholder":
        return names[node]
    if node.op == "get_attr":
        return f"{names[node]} = self.{node.target}"
    return f"{names[node]} = {target_name(node.target)}({', '.join(arguments_of(node, names))})"
