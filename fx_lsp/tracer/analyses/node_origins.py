"""Record, for graphs that user code builds, where each node was created, and show the graph as a table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import wraps
from types import CodeType
from typing import Any
from unittest import mock

from torch import fx

from fx_lsp.model import Span, Stage
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.capture.torch_graph import chain_of
from fx_lsp.tracer.pytorch_texts import NODE_LINTED
from fx_lsp.tracer.source.provenance import KEY, Sources

_COLUMNS = ("opcode", "name", "target", "args", "kwargs", "users", "spec", "line")
_WIDEST = 60


class OwnNames(Names):
    """Use the names of nodes in the graph itself, which torch's generated code has, too."""

    def __getitem__(self, node: fx.Node) -> str:
        return node.name


@contextmanager
def marked(sources: Sources, stop: CodeType) -> Generator[None, None, None]:
    """Mark every node created inside with the user's expressions that created it; copies keep the mark.

    Frames outside the one that runs `stop` are not the user's.
    """
    original = fx.Graph.create_node

    @wraps(original)
    def create_node(self: fx.Graph, *args: Any, **kwargs: Any) -> fx.Node:
        node = original(self, *args, **kwargs)
        node.meta[KEY] = sources.number(sources.chain(sys._getframe(1), stop))
        return node

    with mock.patch.object(fx.Graph, "create_node", create_node):
        yield


@contextmanager
def unmarked() -> Generator[None, None, None]:
    """Disable marking inside `marked`, for nodes that are not the target's: torch checks a new node for marks."""
    marking = fx.Graph.create_node
    with mock.patch.object(fx.Graph, "create_node", getattr(marking, "__wrapped__", marking)):
        yield


def link_made(graph: fx.Graph, sources: Sources) -> None:
    """Mark the nodes of a graph with the expressions that created them, in the form that `Names.chain` reads.

    In a graph captured from a function, nodes have stacks, which lead further than the capturing call.
    """
    for node in graph.nodes:
        number = node.meta.get(KEY)
        captured = chain_of(node.stack_trace, sources) if node.stack_trace else ()
        if captured:
            number = sources.number(captured)
        if number is not None:
            node.meta["custom"] = {**(node.meta.get("custom") or {}), KEY: number}


def lint_problem(graph: fx.Graph) -> tuple[str, fx.Node | None] | None:
    """Return the error of `Graph.lint` and its node; None for a sound graph."""
    nodes = list(graph.nodes)
    try:
        graph.lint()
    except (RuntimeError, ValueError) as error:
        message = str(error).split("! ")[0].split("\n")[0].rstrip("!.")
        match = NODE_LINTED.search(str(error))
        name = next(g for g in match.groups() if g) if match else ""
        return message, next((n for n in reversed(nodes) if n.name == name), None)
    if not any(n.op == "output" for n in nodes):
        return "the graph has no output node, so its code returns None", nodes[-1] if nodes else None
    return None


def table(graph: fx.Graph, stage: Stage, source_line: Callable[[Span], str]) -> str:
    """Return a table with a row for each node of `graph`, whose stage is `stage`."""
    rows: list[Sequence[str]] = [_COLUMNS]
    for node, shown in zip(graph.nodes, stage.nodes, strict=True):
        count = len(node.args)
        span = shown.span
        where = f"{span.line}: {source_line(span)}".rstrip(": ") if span else ""
        cells = (", ".join(shown.args[:count]), ", ".join(shown.args[count:]), ", ".join(shown.users))
        rows.append((node.op, node.name, shown.target, *map(_short, cells), shown.spec or "", where))
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "".join(f"# {line}\n" for line in lines)


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"
