"""Simulate a region of the source as a checkpoint: the memory that forward saves if its operations are recomputed in
backward.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import fx

from fx_lsp.model import Span
from fx_lsp.tracer.analyses.partitions import MIN_CUT, Graphs, Partitioner, add_graphs, cut, min_cut, page, table
from fx_lsp.tracer.capture.checkpointing import tag
from fx_lsp.tracer.capture.graphs import Names, first_backward
from fx_lsp.tracer.compat import min_cut_partition
from fx_lsp.tracer.stages.ledger import Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

_LINES = re.compile(r"(\d+)-(\d+)")
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def checkpoint_region(traced: TracedCall) -> Ledger:
    """Return a page with the saved bytes before and after, and both pairs of graphs; `checkpoint` are the lines of
    whole statements, `10-14`.

    Raises ValueError for invalid lines, or lines without a part in forward.
    """
    lines = traced.options["checkpoint"]
    match = _LINES.fullmatch(lines)
    if match is None:
        raise ValueError(
            f"{lines!r} is not a range of lines: write the first and the last line of the region, as in 10-14"
        )
    if traced.captured.inference is not None:
        raise ValueError(f"{traced.request.name} has no backward graph, so nothing is saved for backward")
    region, names = _region(traced, int(match[1]), int(match[2])), traced.new_names()
    marked: list[fx.Node] = []

    def run(joint: fx.GraphModule, inputs: Any, **options: Any) -> Graphs:
        for number, nodes in enumerate(_executions(joint.graph, region, names), 1):
            tag(nodes, number)
            marked.extend(nodes)
        return min_cut_partition(joint, inputs, **options)

    title = "min-cut partition, with the region recomputed in backward"
    cuts = cut(traced, [min_cut(), Partitioner("checkpoint", title, run, MIN_CUT)], names)
    if not marked:
        raise ValueError("these statements have no operation in the forward graph")
    ledger = Ledger()
    head = ["Recomputed in backward:", "", *(f"    {line}" for line in region.source.splitlines()), ""]
    ledger.text("checkpoint", "a region as a checkpoint", page(head) + table(cuts))
    add_graphs(ledger, cuts)
    return ledger


@dataclass(frozen=True)
class _Region:
    """Hold lines of a file; `repeated` is True inside of a loop, `loops` are the lines of inner loops."""

    file: str
    lines: range
    source: str
    repeated: bool
    loops: tuple[range, ...]

    def place(self, chain: tuple[Span, ...]) -> int | None:
        """Return the index of the outermost expression of a chain that is in the region, or None."""
        inside = [i for i, s in enumerate(chain) if s.file == self.file and s.line in self.lines]
        return inside[-1] if inside else None


def _region(traced: TracedCall, first: int, last: int) -> _Region:
    source = traced.request.source
    loops = [range(n.lineno, (n.end_lineno or 0) + 1) for n in ast.walk(ast.parse(source)) if isinstance(n, _LOOPS)]
    within = tuple(loop for loop in loops if first <= loop.start and loop.stop <= last + 1)
    repeated = any(loop.start < first and last < loop.stop for loop in loops)
    text = textwrap.dedent("\n".join(source.splitlines()[first - 1 : last]))
    return _Region(traced.request.file, range(first, last + 1), text, repeated, within)


def _executions(graph: fx.Graph, region: _Region, names: Names) -> Iterator[list[fx.Node]]:
    """Yield the operations of the region, in execution order, grouped by execution.

    A new execution begins if other code ran in between, if the region is reached by another path, and, in a loop, if
    its first operation recurs.
    """
    nodes = list(graph.nodes)
    running: list[fx.Node] = []
    way: tuple[Span, ...] = ()
    for node in nodes[: first_backward(nodes)]:
        chain = names.chain(node)
        if node.op != "call_function" or not chain:
            continue
        place = region.place(chain)
        start = running and (place is None or chain[place + 1 :] != way or _again(node, running[0], region, names))
        if start:
            yield running
            running = []
        if place is not None:
            running.append(node)
            way = chain[place + 1 :]
    if running:
        yield running


def _again(node: fx.Node, first: fx.Node, region: _Region, names: Names) -> bool:
    """Return True if `node` is the same operation as `first`, in a later iteration of a loop around the region."""
    chain = names.chain(node)
    if not region.repeated or node.target is not first.target or chain != names.chain(first):
        return False
    place = region.place(chain)
    return place is not None and not any(chain[place].line in loop for loop in region.loops)
