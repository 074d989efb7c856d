"""Track a graph while passes rewrite it: the changes of each pass, with stable names of nodes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.fx.node import map_arg

from fx_lsp.model import Change, Remark, Stage, StageInfo
from fx_lsp.tracer.capture.graphs import Names, is_tangent, node_spec, stage_of
from fx_lsp.tracer.compat import annotation
from fx_lsp.tracer.source.provenance import KEY
from fx_lsp.tracer.stages.equivalence import RandomRun, compare, run_for_real


class Row(NamedTuple):
    """Hold the state of a node at one moment. Argument tuples are never changed in place, so references to them are
    copies.
    """

    node: torch.fx.Node
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


Rows = list[Row]
Origins = Mapping[str, str]
"""For nodes of a copied graph, by name: the name of the original node."""


def rows_of(graph: torch.fx.Graph) -> Rows:
    """Return the current state of a graph."""
    return [Row(n, n.target, n.args, n.kwargs) for n in graph.nodes]


def unchanged(before: Rows, graph: torch.fx.Graph, origins: Origins | None) -> set[torch.fx.Node]:
    """Return the nodes of a graph with the same operation and arguments as `before`.

    `origins` are as in `Ledger.step`.
    """
    after = rows_of(graph)
    copied_from = _origins(before, after, origins)
    if copied_from is None:
        old = {row.node: row for row in before}
        return {row.node for row in after if (was := old.get(row.node)) is not None and was[1:] == row[1:]}
    originals = {row.node.name: row for row in before}
    pairs = [(originals[copied_from[row.node.name]], row) for row in after if row.node.name in copied_from]
    return {row.node for was, row in pairs if not _differs(was, row, {}, copied_from)}


@dataclass
class Lane:
    """Hold one graph on its way through passes: its last stage, its state then, and its results if it is checked."""

    stage: str
    rows: Rows
    names: Names
    results: RandomRun | None = None


@dataclass(frozen=True)
class Heading:
    """Hold the name of a stage, its title in the list of stages, and a note on it."""

    name: str
    title: str
    note: str = ""


@dataclass
class Ledger:
    """Hold the stages of a pipeline in order; those of passes that changed nothing have no `Stage`.

    `remarks` are on places in the user's code. With `check`, graphs run before and after each pass, and notes report
    whether they are the same function.
    """

    check: bool = False

    infos: list[StageInfo] = field(default_factory=list[StageInfo])
    stages: list[Stage] = field(default_factory=list[Stage])
    remarks: list[Remark] = field(default_factory=list[Remark])

    def begin(self, heading: Heading, graph: torch.fx.Graph, names: Names, before: str = "") -> Lane:
        """Add a newly created graph, derived from that of the stage `before`, if there is one; return its lane."""
        name = self._unused(heading.name)
        self.add(stage_of(name, graph, names), heading.title, before, None, heading.note)
        results = run_for_real(graph, _alone(graph), names.__getitem__, names.is_buffer) if self.check else None
        return Lane(name, rows_of(graph), names, results)

    def step(self, lane: Lane, heading: Heading, graph: torch.fx.Graph, origins: Origins | None = None) -> StageInfo:
        """Add the graph of `lane` after a pass; `origins` are passed if it is a copy, and they are known."""
        name, title, note = self._unused(heading.name), heading.title, heading.note
        rows = rows_of(graph)
        if _untouched(lane.rows, rows):
            change = Change()
        else:
            copied_from = _origins(lane.rows, rows, origins)
            names = lane.names if copied_from is None else lane.names.of_copy(copied_from)
            change = follow(lane.rows, rows, lane.names, names, copied_from or {})
            lane.rows, lane.names = rows, names
        if change and lane.results is not None and not note:
            results = run_for_real(graph, _alone(graph), lane.names.__getitem__, lane.names.is_buffer, lane.results)
            note, lane.results = compare(lane.results, results), results
        if change:
            info = self.add(stage_of(name, graph, lane.names), title, lane.stage, change, note)
            lane.stage = name
            return info
        last = next(i for i in self.infos if i.name == lane.stage)
        info = StageInfo(name, last.ops, last.nodes, title, lane.stage, Change(), note)
        self.infos.append(info)
        return info

    def settle(self, lane: Lane, heading: Heading, graph: torch.fx.Graph) -> None:
        """Add a stage like `step` if something has changed between passes, else none."""
        if not _untouched(lane.rows, rows_of(graph)):
            self.step(lane, heading, graph)

    def lay_out(self, lane: Lane, heading: Heading, graph: torch.fx.Graph) -> None:
        """Add a stage like `settle` if nodes are the same, and their values may have another shape, dtype or layout."""
        stage = stage_of(self._unused(heading.name), graph, lane.names)
        last = next(s for s in reversed(self.stages) if s.name == lane.stage)
        pairs = zip(last.nodes, stage.nodes, strict=True)
        changed = sum(old.spec != new.spec and new.op != "output" for old, new in pairs)
        if changed:
            self.add(stage, heading.title, lane.stage, Change(changed=changed))
            lane.stage = stage.name

    def text(self, name: str, title: str, text: str = "", before: str = "", note: str = "") -> None:
        """Add a stage that is not a graph; without text, one that failed, as explained in `note`."""
        name = self._unused(name)
        self.stages.append(Stage(name, text=text))
        self.infos.append(StageInfo(name, 0, 0, title, before, None, note))

    def mark(self, name: str, marks: Iterable[tuple[str, str]]) -> None:
        """Add comments to nodes of the stage `name`, each under the node's name, without duplicates."""
        comments: dict[str, dict[str, None]] = {}
        for node, mark in marks:
            comments.setdefault(node, {})[mark] = None
        place = next(i for i, stage in enumerate(self.stages) if stage.name == name)
        nodes = self.stages[place].nodes
        said = (" · ".join(filter(None, (n.comment, *comments.get(n.name, ())))) for n in nodes)
        marked = tuple(replace(n, comment=text) for n, text in zip(nodes, said, strict=True))
        self.stages[place] = replace(self.stages[place], nodes=marked)

    def add(
        self, stage: Stage, title: str, before: str = "", change: Change | None = None, note: str = ""
    ) -> StageInfo:
        """Add a stage that exists already."""
        info = StageInfo(stage.name, count_ops(stage), len(stage.nodes), title, before, change, note)
        self.infos.append(info)
        self.stages.append(stage)
        return info

    def _unused(self, name: str) -> str:
        names = {i.name for i in self.infos}
        return next(n for n in _numbered(name) if n not in names)


def _alone(graph: torch.fx.Graph) -> bool:
    """Return True for a graph before differentiation; other graphs compute gradients themselves, or take some."""
    return not any(map(is_tangent, graph.nodes))


def page(lines: Iterable[str]) -> str:
    """Return lines as the comments of a Python file."""
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def count_ops(stage: Stage) -> int:
    """Return the number of operations of a stage: calls that compute something."""
    return sum(node.computes for node in stage.nodes)


def _numbered(name: str) -> Iterator[str]:
    yield name
    count = 2
    while True:
        yield f"{name}~{count}"
        count += 1


def _untouched(before: Rows, after: Rows) -> bool:
    return len(before) == len(after) and all(
        old.node is new.node and old.target is new.target and old.args == new.args and old.kwargs == new.kwargs
        for old, new in zip(before, after, strict=True)
    )


def _origins(before: Rows, after: Rows, origins: Origins | None) -> Origins | None:
    """Return the origins of a copy's nodes: known ones, else by name. None for a graph changed in place."""
    if origins is not None:
        return origins
    old = {row.node.name: row for row in before}
    if any(row.node.name in old and old[row.node.name].node is row.node for row in after):
        return None
    pairs = [(old[row.node.name], row) for row in after if row.node.name in old]
    return {row.node.name: row.node.name for was, row in pairs if was.target == row.target or _one_place(was, row)}


def _one_place(one: Row, other: Row) -> bool:
    """Return True if nodes of one name come from the same expression, so that one is a copy of the other."""
    number = annotation(one.node, KEY)
    return number is not None and number == annotation(other.node, KEY)


def follow(before: Rows, after: Rows, was: Names, names: Names, origins: Origins) -> Change:
    """Count the changes between two states of a graph, with the names `was` and `names`.

    A node that replaced another inherits its name and origin.
    """
    old = {row.node.name: row for row in before}
    new: dict[str, Row] = {}
    for row in after:
        name = origins.get(row.node.name, row.node.name) if origins else row.node.name
        new[name if name not in new and (not origins or row.node.name in origins) else f"+{row.node.name}"] = row
    shown = {row.node.name: name for name, row in new.items()}
    gone = [name for name in old if name not in new]
    come = [name for name in new if name not in old]
    replaced = _replacements(old, new, shown)
    for name, by in replaced.items():
        names.inherit(new[by].node, old[name].node, was)
    same = {name: replaced.get(name, name) for name in old}
    changed = sum(_differs(row, new[same[name]], replaced, shown) for name, row in old.items() if same[name] in new)
    moved = _moved([n for n in old if n in new], [n for n in new if n in old])
    return Change(len(come) - len(replaced), len(gone) - len(replaced), changed, moved)


def _replacements(old: dict[str, Row], new: dict[str, Row], shown: dict[str, str]) -> dict[str, str]:
    """Return, for each removed node, the new one in its place among the arguments of its users."""
    successors: dict[str, str] = {}
    replacing: set[str] = set()
    pairs = [(row, new[name]) for name, row in reversed(old.items()) if name in new]
    while pairs:
        following: list[tuple[Row, Row]] = []
        for before, after in pairs:
            for a, b in zip(_inputs(before, {}), _inputs(after, shown), strict=False):
                is_gone = a in old and a not in new and a not in successors
                is_new = b in new and b not in old and b not in replacing
                if is_gone and is_new and (before.target == after.target or _alike(old[a].node, new[b].node)):
                    successors[a] = b
                    replacing.add(b)
                    following.append((old[a], new[b]))
        pairs = following
    return successors


def _alike(one: torch.fx.Node, other: torch.fx.Node) -> bool:
    """Return True if two nodes have the same shape and dtype, as far as known: strides may differ."""
    before, after = node_spec(one), node_spec(other)
    return before is None or after is None or before.partition("(")[0] == after.partition("(")[0]


def _inputs(row: Row, shown: Mapping[str, str]) -> list[str]:
    inputs: list[str] = []
    map_arg((row.args, row.kwargs), lambda node: inputs.append(shown.get(node.name, node.name)))
    return inputs


def _differs(before: Row, after: Row, replaced: Mapping[str, str], shown: Mapping[str, str]) -> bool:
    if before.target is not after.target and before.target != after.target:
        return True
    if before.args == after.args and before.kwargs == after.kwargs:
        return False
    one = map_arg((before.args, before.kwargs), lambda node: f"%{replaced.get(node.name, node.name)}")
    other = map_arg((after.args, after.kwargs), lambda node: f"%{shown.get(node.name, node.name)}")
    return one != other


def _moved(before: list[str], after: list[str]) -> int:
    """Count the names that changed their order: all except those of a longest common subsequence."""
    place = {name: i for i, name in enumerate(before)}
    tails: list[int] = []
    for name in after:
        at = bisect_left(tails, place[name])
        tails[at : at + 1] = [place[name]]
    return len(after) - len(tails)
