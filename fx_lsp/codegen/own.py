"""Kernels that are written as a whole: in the graph, one node stands for each, and its results are picked from it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import fx

from fx_lsp.codegen.kernel import Kernel, Naming
from fx_lsp.codegen.values import Buffer

_KEY = "fx_lsp_kernels"


class Writer(Protocol):
    """Writes the kernels of a node. `outputs` are the nodes of its results by number, as far as they are needed."""

    def __call__(
        self, outputs: Mapping[int, fx.Node], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
    ) -> list[Kernel]: ...


def own_kernel(*tensors: Any, makes: str) -> Any:
    """What a node calls that kernels of ours stand behind; it is never run.

    `makes` tells nodes apart that read the same: the partitioner takes calls with the same arguments for one.
    """
    raise TypeError(f"{makes} is made by a kernel, and its graph is not run")


def writer_of(node: fx.Node) -> Writer | None:
    """What writes the kernels of a node, or None for one that is an operation of ATen."""
    return node.meta.get(_KEY)


def outputs_of(node: fx.Node) -> dict[int, fx.Node]:
    """The nodes that pick the results of a node, by number."""
    found: dict[int, fx.Node] = {}
    for user in node.users:
        number: Any = user.args[1]
        if user.target is operator.getitem:
            found[number] = user
    return found


def replace_with_kernel(
    graph: fx.Graph, results: Sequence[fx.Node], reads: Sequence[fx.Node], writer: Writer
) -> fx.Node:
    """Put one node in the place of those that compute `results`, which keep their names; it reads the nodes `reads`.

    What nobody needs any more stays in the graph, which has to be sorted afterwards (`tidied`).
    """
    last = max(reads, key=list(graph.nodes).index)
    with graph.inserting_after(last):
        node = graph.call_function(own_kernel, tuple(reads), {"makes": results[0].name})
    node.meta = {k: v for k, v in results[0].meta.items() if k != "val"}
    node.meta["val"] = tuple(r.meta["val"] for r in results)
    node.meta[_KEY] = writer
    after = node
    for number, result in enumerate(results):
        with graph.inserting_after(after):
            after = graph.call_function(operator.getitem, (node, number))
        after.meta = dict(result.meta)
        result.replace_all_uses_with(after)
        name, result.name = result.name, f"{result.name}_before"
        after.name = name
    return node


def inserted(
    graph: fx.Graph, like: fx.Node, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None
) -> fx.Node:
    """A new call in a graph, at the place where it inserts; it comes from where `like` comes from."""
    node = graph.call_function(function, args, dict(kwargs or {}))
    values = fx.map_arg((args, kwargs or {}), lambda n: n.meta["val"])
    with like.meta["val"].fake_mode:
        node.meta = {**like.meta, "val": function(*values[0], **values[1])}  # pyright: ignore
    return node


@dataclass(frozen=True)
class Piece:
    """A copy of a part of a graph, from tensors in memory (`reads`) on; `of` has the copies of nodes."""

    reads: tuple[fx.Node, ...]
    of: Mapping[fx.Node, fx.Node]


def piece_of(reads: Sequence[fx.Node], wanted: Iterable[fx.Node]) -> Piece:
    """The part of a graph that computes `wanted` from `reads`: it stays as it is, whatever becomes of the graph."""
    graph = fx.Graph()
    of: dict[fx.Node, fx.Node] = {}
    for read in reads:
        of[read] = graph.placeholder(read.name)
        of[read].meta = dict(read.meta)
        of[read].name = read.name
    stack = list(wanted)
    while stack:
        node = stack[-1]
        missing = [i for i in node.all_input_nodes if i not in of]
        if node in of or not missing:
            stack.pop()
            if node not in of:
                of[node] = graph.node_copy(node, lambda n: of[n])
        else:
            stack.extend(missing)
    return Piece(tuple(of[r] for r in reads), of)


def tidied(graph: fx.Graph) -> None:
    """Put the nodes of a graph in an order in which each comes after what it needs, and remove what nobody needs."""
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    order: dict[fx.Node, None] = {}
    for start in [n for n in graph.nodes if n.op == "placeholder"] + [output]:
        stack = [(start, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                order[node] = None
            elif node not in order:
                stack.append((node, True))
                stack.extend((i, False) for i in reversed(node.all_input_nodes) if i not in order)
    previous: fx.Node | None = None
    for node in order:
        if previous is not None:
            previous.append(node)
        previous = node
    for node in reversed(list(graph.nodes)):
        if node not in order:
            graph.erase_node(node)
    graph.lint()
