"""Results that share memory: with an input, or with another result."""

from __future__ import annotations

from collections.abc import Collection

from torch import fx

from fx_lsp.codegen.views import views


def set_aside(
    graph: fx.Graph, outputs: int, tangents: Collection[int] | None, differentiable: bool
) -> dict[int, fx.Node]:
    """Take those of the first `outputs` results out of a forward graph that are views of inputs or of other results.

    They are made outside of the operator and of the autograd function, so that autograd knows them for views: no
    gradient is passed to backward for them. `tangents` are the results that have one, None for all. Returns the nodes
    that were taken out by their position; they remain in the graph, where nothing uses them.
    """
    output = next(n for n in reversed(graph.nodes) if n.op == "output")
    given = output.args[0]
    results = list(given) if isinstance(given, (tuple, list)) else [given]
    nodes = {k: r for k, r in enumerate(results[:outputs]) if isinstance(r, fx.Node)}
    own = set(nodes) if differentiable and tangents is None else set(tangents or ()) if differentiable else set[int]()
    known = {nodes[k] for k in own & nodes.keys()}
    found: dict[int, fx.Node] = {}
    for position, node in nodes.items():
        chain = list(views(node))
        if chain[-1].op == "placeholder" or (position not in own and any(n in known for n in chain)):
            found[position] = node
        else:
            known.add(node)
    if found:
        output.args = ([None if k in found else r for k, r in enumerate(results)],)
    return found
