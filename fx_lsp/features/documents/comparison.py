"""Align the nodes of several graphs in rows, and say which of them differ from the first graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TypeAlias

from fx_lsp import __version__, files
from fx_lsp.features.documents.diffs import is_same, longest_run, pairs
from fx_lsp.features.documents.document import render_node
from fx_lsp.features.wording.text import count
from fx_lsp.model import Node, Stage

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\s*=[^=])(?![\w(])")
"""A name in an argument, which may be that of a node: no name of a keyword, and no name of a call."""
_Nodes: TypeAlias = tuple[Node | None, ...]


@dataclass(frozen=True)
class AlignedRow:
    """Hold the same node of each graph, None where a graph lacks it; `unlike` are the graphs in which it differs from
    the first graph.
    """

    nodes: tuple[Node | None, ...]
    unlike: tuple[bool, ...]

    @property
    def alike(self) -> bool:
        """Return True if the node is the same in all graphs."""
        return not any(self.unlike)


def align(stages: Sequence[Stage]) -> tuple[AlignedRow, ...]:
    """Return the nodes of graphs in rows. Each graph is aligned with the rows of those before it: by the names of
    nodes, and between these by their operations, in order. Arguments are compared by the rows that they refer to, so
    a renamed node is not a difference.
    """
    rows: list[_Nodes] = []
    for width, stage in enumerate(stages):
        rows = list(_with_stage(rows, stage, width))
    places = [_places(rows, graph) for graph in range(len(stages))]
    return tuple(AlignedRow(nodes, tuple(_unlike(nodes, places))) for nodes in rows)


def _with_stage(rows: Sequence[_Nodes], stage: Stage, width: int) -> Iterator[_Nodes]:
    """Yield the rows of `width` graphs with one graph more."""
    latest = [next(node for node in reversed(row) if node is not None) for row in rows]
    named = _named(latest, {node.name: node for node in stage.nodes})
    following = iter(named)
    next_row = 0
    for i, node in _paired([latest[i] for i in named], stage.nodes):
        if i is None:
            yield (*(None,) * width, node)
            continue
        row = next(following)
        while next_row < row:
            yield (*rows[next_row], None)
            next_row += 1
        yield (*rows[row], node)
        next_row = row + 1
    for row in rows[next_row:]:
        yield (*row, None)


def _named(rows: Sequence[Node], nodes: Mapping[str, Node]) -> list[int]:
    """Return one row for each name, in order: rows of several graphs may have different nodes of one name. It is the
    row of the same node as in `nodes`, else the last row.
    """
    chosen: dict[str, int] = {}
    for i, node in enumerate(rows):
        before, new = chosen.get(node.name), nodes.get(node.name)
        if before is None or new is None or is_same(node, new) or not is_same(rows[before], new):
            chosen[node.name] = i
    return sorted(chosen.values())


def _paired(before: Sequence[Node], after: Sequence[Node]) -> Iterator[tuple[Node | None, Node | None]]:
    """Yield the pairs of two graphs; between nodes that kept their names, nodes of one operation are pairs, too, unless
    their names are in both graphs.
    """
    common = {node.name for node in before} & {node.name for node in after}
    gone: list[Node] = []
    come: list[Node] = []
    for old, new, _ in pairs(before, after):
        if old is not None and new is not None:
            yield from _by_operation(gone, come, common)
            gone, come = [], []
            yield old, new
        elif old is not None:
            gone.append(old)
        elif new is not None:
            come.append(new)
    yield from _by_operation(gone, come, common)


def _by_operation(
    before: Sequence[Node], after: Sequence[Node], common: Set[str]
) -> Iterator[tuple[Node | None, Node | None]]:
    old, new = _numbered(before, common, "old"), _numbered(after, common, "new")
    staying = set(longest_run([key for key in old if key in new], [key for key in new if key in old]))
    pending = iter(old)
    come: list[Node] = []
    for key, node in new.items():
        if key not in staying:
            come.append(node)
            continue
        for gone in pending:
            if gone == key:
                break
            yield old[gone], None
        yield from ((None, other) for other in come)
        come = []
        yield old[key], node
    yield from ((old[gone], None) for gone in pending)
    yield from ((None, other) for other in come)


def _numbered(nodes: Iterable[Node], common: Set[str], graph: str) -> dict[str, Node]:
    """Return nodes by keys that two graphs share: the operation, numbered; inputs are one operation. The keys of
    `common` names are those of one `graph`.
    """
    seen = Counter[str]()
    keys: dict[str, Node] = {}
    for node in nodes:
        what = node.op if node.op in ("placeholder", "output") else f"{node.op} {node.target}"
        what = f"{graph} {node.name}" if node.name in common and node.op != "output" else what
        seen[what] += 1
        keys[f"{what} {seen[what]}"] = node
    return keys


def _places(rows: Sequence[_Nodes], graph: int) -> dict[str, int]:
    """Return the rows of the nodes of a graph, by name."""
    nodes = ((i, row[graph]) for i, row in enumerate(rows))
    return {node.name: i for i, node in nodes if node is not None}


def _unlike(nodes: _Nodes, places: Sequence[Mapping[str, int]]) -> Iterator[bool]:
    first, *_ = shown = [None if n is None else _meaning(n, rows) for n, rows in zip(nodes, places, strict=True)]
    yield from (other != first for other in shown)


def _meaning(node: Node, rows: Mapping[str, int]) -> tuple[str, ...]:
    """Return the operation of a node and its arguments, with rows in place of their names."""
    if node.op == "placeholder":
        return node.op, node.spec or ""
    args = (_NAME.sub(lambda name: f"%{rows[name[0]]}" if name[0] in rows else name[0], arg) for arg in node.args)
    return node.op, node.target, node.spec or "", *args


CONTEXT = 3
"""The rows that are shown around a difference."""
_LEAST_WIDTH = 12
_MARK = "≠"
_BORDER = " │ "


def columns_text(
    titles: Sequence[str], rows: Sequence[AlignedRow], width: int | None = None, full: bool = False
) -> list[str]:
    """Return the graphs as columns, with a mark before each row that differs: all rows if `full`, otherwise those
    around differences. Columns are cut to fit in `width`.
    """
    texts = [[_text(node) for node in row.nodes] for row in rows]
    widest = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    if width is not None:
        share = max((width - 2 - len(_BORDER) * (len(titles) - 1)) // len(titles), _LEAST_WIDTH)
        widest = [min(size, share) for size in widest]
    lines = [_line(" ", titles, widest), _line(" ", ["─" * size for size in widest], widest)]
    for start, stop, hidden in _parts(rows, full):
        lines += [f"  # {count('row', stop - start)} alike"] if hidden else []
        for i in () if hidden else range(start, stop):
            lines.append(_line(" " if rows[i].alike else _MARK, texts[i], widest))
    return [*lines, *(["  # no difference"] if all(row.alike for row in rows) else [])]


def comparison_page(titles: Sequence[str], rows: Sequence[AlignedRow]) -> str:
    """Return the graphs as one HTML file, in columns that scroll together."""
    heads = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "\n".join(f'<tr class="{"alike" if row.alike else "unlike"}">{"".join(_cells(row))}</tr>' for row in rows)
    template = Template(files.read_text(Path(__file__).with_name("comparison.html")))
    unlike = sum(not row.alike for row in rows)
    return template.substitute(
        title=escape(" · ".join(titles)),
        summary=f"{count('row', len(rows))}, {unlike:,} of them with a difference",
        columns=str(len(titles)),
        heads=heads,
        rows=body,
        version=__version__,
    )


def _cells(row: AlignedRow) -> Iterator[str]:
    for node, unlike in zip(row.nodes, row.unlike, strict=True):
        style = ' class="unlike"' if unlike else ""
        yield f"<td{style}>{escape(_text(node))}</td>"


def _text(node: Node | None) -> str:
    return "" if node is None else render_node(node)


def _line(mark: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = (cell if len(cell) <= size else f"{cell[: size - 1]}…" for cell, size in zip(cells, widths, strict=True))
    padded = (cell.ljust(size) for cell, size in zip(shown, widths, strict=True))
    return f"{mark} {_BORDER.join(padded)}".rstrip()


def _parts(rows: Sequence[AlignedRow], full: bool) -> Iterator[tuple[int, int, bool]]:
    """Yield the first and last rows (exclusive) of parts, and whether they are hidden."""
    near = [full] * len(rows)
    for i, row in enumerate(rows):
        if not row.alike:
            for j in range(max(i - CONTEXT, 0), min(i + CONTEXT + 1, len(rows))):
                near[j] = True
    start = 0
    while start < len(rows):
        stop = start + 1
        while stop < len(rows) and near[stop] == near[start]:
            stop += 1
        yield start, stop, not near[start]
        start = stop
