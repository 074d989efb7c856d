"""What the gradients inside a backward graph are gradients of."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import fx

from fx_lsp.codegen.graph.saved import SavedValues


def gradients(saved: SavedValues) -> dict[fx.Node, fx.Node]:
    """For each node of backward that is the whole gradient of a value of forward, that value.

    What the backward of an operation reads of the backward of a later one is the gradient of its result: autograd
    numbers operations in order, and the backward of each has its number. A part of a gradient is read by an addition.
    """
    forward_values = set(saved.copies.values())
    values: dict[int, fx.Node] = {}
    for node in saved.forward.nodes:
        number = _number(node)
        if number is not None and not _is_backward(node):
            values[number] = node
    found: dict[fx.Node, fx.Node] = {}
    for node in saved.backward.nodes:
        if node.op != "call_function" or node in forward_values or not _is_backward(node):
            continue
        made = _number(node)
        earlier = [n for n in _readers(node) if made is not None and n < made]
        value = values.get(max(earlier)) if earlier else None
        if value is not None and _is_alike(node, value):
            found[node] = value
    return found


def _readers(node: fx.Node) -> Iterator[int]:
    """The numbers of the operations whose backward reads a node."""
    for user in node.users:
        number = _number(user)
        if number is None or not _is_backward(user):
            continue
        if user.target is torch.ops.aten.add.Tensor:
            return
        yield number


def _number(node: fx.Node) -> int | None:
    number = node.meta.get("seq_nr")
    return number if isinstance(number, int) else None


def _is_backward(node: fx.Node) -> bool:
    return node.meta.get("partitioner_tag") == "is_backward"


def _is_alike(one: fx.Node, other: fx.Node) -> bool:
    first, second = one.meta.get("val"), other.meta.get("val")
    return isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor) and first.shape == second.shape
