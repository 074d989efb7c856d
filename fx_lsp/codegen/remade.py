"""What a loop takes that was known before it: as little as possible is kept for its rounds, the rest is made again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import networkx

from fx_lsp.codegen.matching import Column, made_alike
from fx_lsp.codegen.values import Compute

MOST_LOOKED_AT = 400
"""How many values of a round are looked at, with what they are made of."""


def made_again(kept: Iterable[Column]) -> frozenset[int]:
    """Of values that are kept for the rounds of a loop, and of what these are made of, those that the rounds make
    themselves where as few as possible are kept: the ids of what there is for the first round. Empty where as many
    have to be kept as are kept."""
    taken = {id(column[0]): column for column in kept}
    graph = networkx.DiGraph()
    looked_at, waiting = dict(taken), deque(taken.values())
    for key in taken:
        graph.add_edge("rounds", (key, "in"))
    while waiting:
        column = waiting.popleft()
        key = id(column[0])
        graph.add_edge((key, "in"), (key, "out"), capacity=1)
        inputs = _inputs(column)
        if inputs is None or len(looked_at) > MOST_LOOKED_AT:
            graph.add_edge((key, "out"), "before")
            continue
        for each in inputs:
            graph.add_edge((key, "out"), (id(each[0]), "in"))
            if id(each[0]) not in looked_at:
                looked_at[id(each[0])] = each
                waiting.append(each)
    number, (near, _) = networkx.minimum_cut(graph, "rounds", "before")
    if number >= len(taken):
        return frozenset()
    return frozenset(key for key in looked_at if (key, "out") in near)


def _inputs(column: Column) -> list[Column] | None:
    """What the values of a column are made of, but for what is the same in all rounds; None where they are not made
    alike."""
    if not isinstance(column[0], Compute) or not made_alike(column):
        return None
    inputs = zip(*(v.inputs for v in column), strict=True)
    return [each for each in inputs if any(v is not each[0] for v in each)]
