"""Kernels that are written as a whole: in the graph, one node stands for each, and its results are picked from it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import fx

from fx_lsp.codegen.index import Coords
from fx_lsp.codegen.places import Place, Step
from fx_lsp.codegen.pull import shape_of
from fx_lsp.codegen.values import Buffer

if TYPE_CHECKING:
    from fx_lsp.codegen.kernel import Kernel, Naming

_KEY = "fx_lsp_kernels"
_LANDING = "fx_lsp_landing"
_ROLE = "fx_lsp_role"


class Writer(Protocol):
    """Writes the kernels of a node. `places` are those of its results by number, as far as they are needed; `buffers`
    are what is in memory."""

    def __call__(
        self, places: Mapping[int, Place], buffers: Mapping[fx.Node, Buffer], naming: Naming, title: str
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


def land(graph: fx.Graph, number: int, result: fx.Node, copy: fx.Node, steps: tuple[Step, ...]) -> fx.Node:
    """Have a node make, in place of a result, a copy of it that is some steps away; returns what picks that."""
    node: Any = result.args[0]
    made: Any = copy.meta["val"]
    with graph.inserting_after(result):
        landed = graph.call_function(operator.getitem, (node, number))
    landed.meta = {**result.meta, "val": made, _LANDING: (shape_of(result), steps)}
    node.meta["val"] = tuple(made if i == number else v for i, v in enumerate(node.meta["val"]))
    name, result.name = result.name, f"{result.name}_before"
    landed.name = name
    return landed


def landing(result: fx.Node) -> tuple[Coords, tuple[Step, ...]]:
    """The shape in which a result is computed, and the steps from there to what is in memory."""
    return result.meta.get(_LANDING) or (shape_of(result), ())


@dataclass(frozen=True)
class Role:
    """What a node is in what a kernel computes: the gradient of something, or what is called `title`.

    `of` are the names of the nodes that might say what that something is called, the likeliest first.
    """

    title: str
    of: tuple[str, ...] = ()


def give_role(node: fx.Node, role: Role) -> None:
    """Say what a node is; it is called so where nothing else gives it a name."""
    node.meta.setdefault(_ROLE, role)


def role_of(node: fx.Node) -> Role | None:
    """What a node is in a kernel of ours, if that has been said."""
    return node.meta.get(_ROLE)


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
    """Put each node of a graph behind what it needs, else in the order that they have, and remove what nobody needs.

    Partitioners tell by the order, too, what is forward's.
    """
    live: set[fx.Node] = set()
    pending = [n for n in graph.nodes if n.is_impure()]
    while pending:
        node = pending.pop()
        if node not in live:
            live.add(node)
            pending.extend(node.all_input_nodes)
    order: dict[fx.Node, None] = {}
    for start in [n for n in graph.nodes if n in live]:
        stack = [start]
        while stack:
            missing = [i for i in stack[-1].all_input_nodes if i not in order]
            if missing:
                stack.extend(reversed(missing))
            else:
                order[stack.pop()] = None
    previous: fx.Node | None = None
    for node in order:
        if previous is not None:
            previous.append(node)
        previous = node
    for node in reversed(list(graph.nodes)):
        if node not in order:
            graph.erase_node(node)
    graph.lint()
