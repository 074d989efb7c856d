"""Show the changes of a pass as a unified diff of two stages that follows nodes by their names.

Nodes keep their names through passes, so equal names are the same node in two stages. The comparison is linear, and a
renumbering is not a difference.
"""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from fx_lsp.features.documents.document import Document, Line, render_node, title_lines
from fx_lsp.model import Node, Stage, Trace

CONTEXT = 3


class Edit(NamedTuple):
    """Hold one line of a diff: " " for a node of both stages, "-" for one of the first only, "+" for one of the second
    only.
    """

    mark: str
    node: Node
    comment: str = ""


def render_diff(trace: Trace, before: Stage, after: Stage) -> Document:
    """Return the document of a diff: a header, and hunks with three lines around every change."""
    head = [Line(line) for line in title_lines(trace, after.name, f"{before.name} → {after.name}")]
    return Document((*head, *diff_lines(before, after)))


def diff_lines(before: Stage, after: Stage) -> list[Line]:
    """Return the diff without the document's header."""
    if before.text or after.text:
        texts = before.text.splitlines(), after.text.splitlines()
        hunks = [Line(line) for line in list(difflib.unified_diff(*texts, lineterm="", n=CONTEXT))[2:]]
    else:
        hunks = list(_hunks(list(edits(before, after))))
    return [Line(f"--- {before.name}"), Line(f"+++ {after.name}"), *(hunks or [Line("# no difference")])]


class NodePair(NamedTuple):
    """Hold a node of the first stage, the same node of the second, or both; a node `moved` if it is in two pairs."""

    old: Node | None
    new: Node | None
    moved: bool = False


def edits(before: Stage, after: Stage) -> Iterator[Edit]:
    """Yield the lines of both stages in one order: between common nodes, first the removed ones, then the added ones.

    A node that moved appears at both of its places.
    """
    for old, new, moved in pairs(before.nodes, after.nodes):
        if old is not None and new is not None and _reads_alike(old, new):
            yield Edit(" ", new)
            continue
        if old is not None:
            yield Edit("-", old, "moved" if moved else "")
        if new is not None:
            yield Edit("+", new, "moved here" if moved else "")


def pairs(before: Sequence[Node], after: Sequence[Node]) -> Iterator[NodePair]:
    """Yield the nodes of two graphs in one order, those of one name that stayed in place as a pair; between them, first
    the nodes of the first graph, then those of the second.
    """
    old = {n.name: n for n in before}
    new = {n.name: n for n in after}
    common = {name for name in new if name in old and is_same(old[name], new[name])}
    staying = set(longest_run([n for n in old if n in common], [n for n in new if n in common]))
    pending = iter(before)
    come: list[NodePair] = []
    for node in after:
        if node.name not in staying:
            come.append(NodePair(None, node, node.name in common))
            continue
        for gone in pending:
            if gone.name == node.name:
                yield from come
                yield NodePair(gone, node)
                break
            yield NodePair(gone, None, gone.name in common)
        come = []
    for gone in pending:
        yield NodePair(gone, None, gone.name in common)
    yield from come


def _reads_alike(old: Node, new: Node) -> bool:
    """Return True if a node of both stages is the same line in both."""
    same = new.op == "placeholder" or (old.op, old.target, old.args) == (new.op, new.target, new.args)
    return same and (old.spec == new.spec or new.op == "output")


def is_same(old: Node, new: Node) -> bool:
    """Return True if two nodes of one name are the same node: a graph that was traced again may reuse the name."""
    return old.op == new.op and (old.target == new.target or old.spans == new.spans)


def longest_run(before: list[str], after: list[str]) -> list[str]:
    """Return a longest common subsequence of two orders of the same names."""
    if before == after:
        return before
    place = {name: i for i, name in enumerate(before)}
    tails: list[int] = []
    last: list[str] = []
    previous: dict[str, str | None] = {}
    for name in after:
        at = bisect_left(tails, place[name])
        previous[name] = last[at - 1] if at else None
        tails[at : at + 1] = [place[name]]
        last[at : at + 1] = [name]
    run: list[str] = []
    name = last[-1] if last else None
    while name is not None:
        run.append(name)
        name = previous[name]
    return run[::-1]


def _hunks(edits: list[Edit]) -> Iterator[Line]:
    changed = [i for i, edit in enumerate(edits) if edit.mark != " "]
    old = list(accumulate((edit.mark != "+" for edit in edits), initial=0))
    new = list(accumulate((edit.mark != "-" for edit in edits), initial=0))
    start = 0
    while start < len(changed):
        stop = start + 1
        while stop < len(changed) and changed[stop] - changed[stop - 1] <= 2 * CONTEXT + 1:
            stop += 1
        first, end = max(changed[start] - CONTEXT, 0), min(changed[stop - 1] + CONTEXT + 1, len(edits))
        yield Line(f"@@ -{_extent(old, first, end)} +{_extent(new, first, end)} @@")
        for edit in edits[first:end]:
            yield _line(edit)
        start = stop


def _extent(lines: list[int], first: int, end: int) -> str:
    """Return the first line and the number of lines of a hunk in one of the stages; `lines` counts its lines before
    every edit.
    """
    length = lines[end] - lines[first]
    return f"{lines[first] + bool(length)},{length}"


def _line(edit: Edit) -> Line:
    mark, node, comment = edit
    is_input = node.op == "placeholder"
    text = render_node(node)
    if is_input or node.comment or comment:
        text += f"  # {' · '.join(c for c in ('input' if is_input else '', node.comment, comment) if c)}"
    return Line(f"{mark}    {text}", node.spans, (node.name,))
