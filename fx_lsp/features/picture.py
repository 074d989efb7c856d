"""Convert a stage to plain data for a picture: nodes, edges, and groups of nodes by call and by source line."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from fx_lsp.features.costs.memory import bytes_of
from fx_lsp.features.documents.document import render_node
from fx_lsp.features.wording.dimensions import SizeNames, SizeStyle
from fx_lsp.features.wording.text import one_line
from fx_lsp.model import Node, Span, Stage, Trace

SourceText = Callable[[Span], "str | None"]
_CALLEE = re.compile(r"[\w.\[\]'\"]+(?=\()")
STRAYS = 10
"""In a repeated call, an operation that occurs once per this many iterations may have another cause."""
RECOMPUTED = "recomputed from forward"
"""The tracer's comment on a node of backward that forward has computed already."""


@dataclass(frozen=True)
class Box:
    """Describe a node of the picture. `saved` are its bytes saved for backward, or None; `group` is the index of the
    innermost group, or -1.
    """

    name: str
    kind: str
    label: str
    spec: str
    text: str
    bytes: int | None
    saved: int | None
    recomputed: bool
    backward: bool
    span: Span | None
    group: int


@dataclass(frozen=True)
class Group:
    """Describe the nodes of one call (`self.attn`) or, innermost, of one source line; `parent` is an index, or -1.

    `round` numbers the iterations of a call that a loop repeats, else it is 0.
    """

    title: str
    kind: str
    parent: int
    span: Span
    round: int = 0


@dataclass(frozen=True)
class Picture:
    """Hold boxes in execution order; edges are pairs of indices of boxes."""

    boxes: tuple[Box, ...]
    edges: tuple[tuple[int, int], ...]
    groups: tuple[Group, ...]


def picture(trace: Trace, stage: Stage, source_text: SourceText, sizes: SizeStyle = "numbers") -> Picture:
    """Return the picture of a stage, with sizes in the style `sizes`. `source_text` returns the text of a span, if
    known.
    """
    names = SizeNames(trace, sizes)
    index = {node.name: i for i, node in enumerate(stage.nodes)}
    edges = [(index[n], i) for i, node in enumerate(stage.nodes) for n in dict.fromkeys(node.inputs) if n in index]
    saved = {s.name: s.bytes for s in trace.saved} if stage.name in ("forward", "joint") else {}
    calls = [node for node in stage.nodes if node.op.startswith("call_")]
    chains = _Chains(calls)
    grouping = _Grouping(chains, _beginnings(calls, chains), source_text)
    boxes: list[Box] = []
    behind: set[int] = set()
    into: dict[int, list[int]] = {}
    for before, after in edges:
        into.setdefault(after, []).append(before)
    for i, node in enumerate(stage.nodes):
        backward = stage.name == "joint" and node.op != "output" and _is_backward(node, into.get(i, ()), behind)
        if backward:
            behind.add(i)
        group = grouping.group_of(node, backward) if node.op.startswith("call_") else -1
        boxes.append(_box(node, names, saved.get(node.name), backward, group))
    kept, place = _without_wrappers(grouping.groups)
    return Picture(tuple(replace(box, group=place[box.group]) for box in boxes), tuple(edges), kept)


def _without_wrappers(groups: list[Group]) -> tuple[tuple[Group, ...], dict[int, int]]:
    """Return the groups without calls that contain a single group, or every operation, and the new group of each
    group's nodes.
    """
    inside: dict[int, int] = {}
    for group in groups:
        inside[group.parent] = inside.get(group.parent, 0) + 1
    place, kept = {-1: -1}, list[Group]()
    top = {-1}
    for i, group in enumerate(groups):
        alone = inside.get(i) == 1 and all(g.kind == "call" for g in groups if g.parent == i) and not group.round
        whole = group.parent in top and inside[group.parent] == 1 and group.kind == "call"
        if whole:
            top.add(i)
        if alone or whole:
            place[i] = place[group.parent]
        else:
            place[i] = len(kept)
            kept.append(replace(group, parent=place[group.parent]))
    return tuple(kept), place


def _box(node: Node, names: SizeNames, saved: int | None, backward: bool, group: int) -> Box:
    called = node.op.startswith("call_")
    kind = "op" if called else node.comment if node.comment in ("parameter", "buffer") else node.op
    label = _short(node.target) if called else node.name
    recomputed = node.comment == RECOMPUTED
    shown = names.renamed(node)
    text, spec = one_line(render_node(shown), 300), one_line(shown.spec or "", 80)
    size = bytes_of(node.spec)
    return Box(node.name, kind, label, spec, text, size, saved, recomputed, backward, node.span, group)


def _is_backward(node: Node, inputs: tuple[int, ...] | list[int], behind: set[int]) -> bool:
    is_gradient = node.op == "placeholder" and node.target.startswith("tangents_")
    return is_gradient or any(i in behind for i in inputs)


def _short(target: str) -> str:
    """Return `mm` for `aten.mm.default`, `add` for `aten.add.Tensor`; the last part of other names."""
    name = target.removeprefix("aten.")
    return name.partition(".")[0] if name != target else name.rpartition(".")[2] or name


class _Chains:
    """Convert the spans of nodes to tuples of numbers, the outermost callers first. Nodes share their tuples
    of spans.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.spans: list[Span] = []
        numbers: dict[Span, int] = {}
        self._known: dict[int, tuple[int, ...]] = {}
        for node in nodes:
            if id(node.spans) not in self._known:
                for span in node.spans:
                    if span not in numbers:
                        numbers[span] = len(self.spans)
                        self.spans.append(span)
                self._known[id(node.spans)] = tuple(numbers[span] for span in reversed(node.spans))

    def __getitem__(self, node: Node) -> tuple[int, ...]:
        return self._known[id(node.spans)]


Sign = tuple[str, tuple[int, ...]]
"""The identity of an operation within a call: its target, and its place in the call."""


def _beginnings(nodes: Iterable[Node], chains: _Chains) -> dict[tuple[int, ...], Sign]:
    """Return the first operation of each iteration, for each repeated call; calls are chains of callers.

    If a call is made `n` times, the counts of most operations in each of its parts are multiples of `n`.
    """
    seen: dict[tuple[int, ...], dict[Sign, int]] = {}
    for node in nodes:
        chain = chains[node]
        for depth in range(1, len(chain)):
            counts = seen.setdefault(chain[:depth], {})
            sign = node.target, chain[depth:]
            counts[sign] = counts.get(sign, 0) + 1
    beginnings: dict[tuple[int, ...], Sign] = {}
    for call, counts in seen.items():
        rounds, _ = Counter(counts.values()).most_common(1)[0]
        others = sum(sum(part) for part in _parts(counts) if not _repeats(part, rounds))
        if rounds > 1 and STRAYS * others * rounds <= sum(counts.values()):
            beginnings[call] = next(sign for sign, count in counts.items() if count == rounds)
    return beginnings


def _parts(counts: Mapping[Sign, int]) -> Iterable[list[int]]:
    """Return the counts of operations by part of a call; a call that only makes another has that one's parts."""
    depth = 0
    while len({places[: depth + 1] for _, places in counts}) == 1 and all(len(p) > depth + 1 for _, p in counts):
        depth += 1
    parts: dict[int, list[int]] = {}
    for (_, places), count in counts.items():
        parts.setdefault(places[depth], []).append(count)
    return parts.values()


def _repeats(part: list[int], rounds: int) -> bool:
    """Return True if most operations occur in every iteration, except perhaps the first or the last."""
    regular = sum(n for n in part if n % rounds == 0 or n == rounds - 1 > 1)
    return 2 * regular > sum(part)


@dataclass
class _Grouping:
    chains: _Chains
    beginnings: Mapping[tuple[int, ...], Sign]
    source_text: SourceText
    groups: list[Group] = field(default_factory=list[Group])
    calls: dict[tuple[int, int, bool], tuple[int, bool]] = field(
        default_factory=dict[tuple[int, int, bool], tuple[int, bool]]
    )
    lines: dict[tuple[int, str, int, bool], int] = field(default_factory=dict[tuple[int, str, int, bool], int])

    def group_of(self, node: Node, backward: bool) -> int:
        """Return the innermost group of a node, adding it if it is new; -1 for a node without a source."""
        chain, parent = self.chains[node], -1
        for depth in range(1, len(chain)):
            begins = self.beginnings.get(chain[:depth]) == (node.target, chain[depth:])
            parent = self._call(parent, chain[depth - 1], backward, begins)
        return self._line(parent, self.chains.spans[chain[-1]], backward) if chain else -1

    def _call(self, parent: int, number: int, backward: bool, begins: bool) -> int:
        last = self.calls.get((parent, number, backward))
        if last is not None and not (begins and last[1]):
            self.calls[parent, number, backward] = last[0], last[1] or begins
            return last[0]
        round_ = 0
        if last is not None:
            before = self.groups[last[0]]
            self.groups[last[0]] = replace(before, round=before.round or 1)
            round_ = (before.round or 1) + 1
        span = self.chains.spans[number]
        text = one_line(self.source_text(span) or "", 200)
        callee = _CALLEE.match(text)
        self.groups.append(Group(callee[0] if callee else text[:60] or "call", "call", parent, span, round_))
        self.calls[parent, number, backward] = len(self.groups) - 1, begins
        return len(self.groups) - 1

    def _line(self, parent: int, span: Span, backward: bool) -> int:
        key = parent, span.file, span.line, backward
        if key not in self.lines:
            whole = Span(span.file, span.line, 0, span.line, 1 << 20)
            text = one_line(self.source_text(whole) or "", 80)
            place = f"{span.file.replace(chr(92), '/').rpartition('/')[2]}:{span.line}"
            self.groups.append(Group(f"{place}  {text}".rstrip(), "line", parent, span))
            self.lines[key] = len(self.groups) - 1
        return self.lines[key]
