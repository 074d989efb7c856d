"""Sums into places that tensors of indices name: where they add, and what."""

from __future__ import annotations

import sympy
import torch
from torch import fx

from fx_lsp.codegen.index import Coords, linear
from fx_lsp.codegen.lowerings.indexing import along_dimension, picked, picked_shape
from fx_lsp.codegen.pull import Builder, shape_of
from fx_lsp.codegen.registry import args_of, operation
from fx_lsp.codegen.values import Addition, Axes, Buffer, Compute, Constant, Value

PUT = ("aten.index_put.default", "aten._unsafe_index_put.default")
KEY = "fx_lsp_sum"
"""What nodes have in their `meta` that `is_sum` knows."""


def is_accumulation(node: fx.Node) -> bool:
    """Whether a node adds to elements of a tensor that indices name, in whatever way."""
    name = operation(node)
    if name in PUT:
        return len(node.args) > 3 and bool(node.args[3])
    if name == "aten.scatter_reduce.two":
        return node.args[4] == "sum" and node.kwargs.get("include_self", True) is True
    return name == "aten.scatter_add.default"


def is_sum(node: fx.Node) -> bool:
    """Whether a node is a sum that a kernel adds up with atomic operations."""
    return KEY in node.meta


def summed_shape(node: fx.Node) -> Coords:
    """The shape of what a sum adds: an element for each addition."""
    if operation(node) in PUT:
        return picked_shape(shape_of(node), indices_of_sum(node))
    return shape_of(args_of(node)[2])


def addition(b: Builder, node: fx.Node, coords: Coords, over: Axes, buffer: Buffer) -> Addition:
    """What a sum adds, for the element at `coords` of what it adds, which runs over the axes `over`."""
    values, dtype = values_of_sum(node), buffer.dtype
    if operation(node) in PUT:
        checked = operation(node) != "aten._unsafe_index_put.default"
        at = picked(b, node, shape_of(node), indices_of_sum(node), coords, (), checked)
        value = b.operand(values, coords, (), dtype)
    else:
        at = along_dimension(b, node, args_of(node)[1], args_of(node)[2], shape_of(node), coords)
        value = b.convert(b.pull(values, coords), dtype)
    index = sympy.expand(linear(at, buffer.strides))
    value, where = _chosen(b, value, node)
    return Addition(buffer, index, value, node, b.behind(index.free_symbols), where, over)


def values_of_sum(node: fx.Node) -> fx.Node:
    return args_of(node)[2] if operation(node) in PUT else args_of(node)[3]


def indices_of_sum(node: fx.Node) -> list[fx.Node | None]:
    return list(args_of(node)[1])


def _chosen(b: Builder, value: Value, node: fx.Node) -> tuple[Value, Value | None]:
    """A value, and where it is added: adding zero is left out."""
    if isinstance(value, Compute) and value.template == "tl.where(a, b, c)":
        condition, yes, no = value.args
        if isinstance(no, Constant) and no.value == 0:
            return yes, condition
        if isinstance(yes, Constant) and yes.value == 0:
            return no, b.compute("not_(a)", (condition,), torch.bool, node)
    return value, None
