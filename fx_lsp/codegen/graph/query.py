"""Query the nodes of a graph: shapes, arguments, views, slices, reductions."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import fx
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.codegen.ir.index import Coords, contiguous_strides, count, expression
from fx_lsp.codegen.ir.lowerings import aliases_first, args_of, lowering_of, operation
from fx_lsp.codegen.ir.node_facts import facts_of
from fx_lsp.codegen.ir.values import Buffer
from fx_lsp.codegen.ir.write_target import LayoutStep, Permute, Reshape


def computes_nothing(node: fx.Node) -> bool:
    """Return True if a node computes nothing: it is a view, or selects one of several results."""
    return not operation(node) or aliases_first(node)


def is_empty(node: fx.Node) -> bool:
    """Return True if a node creates a tensor without elements. Selected results of a call do not count: a library may
    need memory of a size that a trace does not know.
    """
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return False
    is_picked_from_call = node.target is operator.getitem and lowering_of(node) is None
    return is_without_elements(value) and not is_picked_from_call


def is_without_elements(value: torch.Tensor) -> bool:
    return any(s == 0 for s in symbolic_shape(value))


def symbolic_shape(value: torch.Tensor) -> Coords:
    """Return the shape of a tensor, as expressions."""
    return tuple(expression(s) for s in value.shape)


def constant_of(node: fx.Node) -> torch.Tensor | None:
    """Return the tensor attribute of the graph module that a `get_attr` node names, or None."""
    module = node.graph.owning_module
    value = getattr(module, str(node.target), None) if node.op == "get_attr" else None
    return value if isinstance(value, torch.Tensor) else None


def graph_results(graph: fx.Graph) -> list[Any]:
    """Return the results of a graph in order, None for missing ones."""
    return tree_leaves(next(n for n in reversed(graph.nodes) if n.op == "output").args)


def is_saved(node: fx.Node) -> bool:
    """Return True if the value of a node in a joint graph has to be saved for backward."""
    return node.meta.get("recompute") is CheckpointPolicy.MUST_SAVE


def shape_of(node: fx.Node, part: int | None = None) -> Coords:
    """Return the shape of a node's result, as expressions."""
    value = node.meta["val"]
    if part is not None and isinstance(value, (tuple, list)):
        value = value[part]
    return symbolic_shape(value)


def dimension(value: Any, rank: int) -> int:
    """Return a dimension, which may count from the end, as a non-negative number."""
    return int(value) % rank if rank else 0


def argument(node: fx.Node, position: int, name: str, default: Any = None) -> Any:
    """Return an argument of a node, by position or by name."""
    return args_of(node)[position] if len(args_of(node)) > position else node.kwargs.get(name, default)


def has_several_results(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (tuple, list))


def is_view(node: fx.Node) -> bool:
    """Return True if a node shares the memory of its first argument: it is a view, or a write in place."""
    if facts_of(node).in_place:
        return True
    return aliases_first(node) and not has_several_results(node) and "reshape" not in operation(node)


def view_chain(node: fx.Node) -> Iterator[fx.Node]:
    """Yield a node, then the node that it is a view of, and so on."""
    yield node
    while node.op == "call_function" and is_view(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
        yield node


VIEW_SCATTERS = {
    "aten.select_scatter.default": "aten.select.int",
    "aten.slice_scatter.default": "aten.slice.Tensor",
    "aten.diagonal_scatter.default": "aten.diagonal.default",
}
"""The operations that replace a view of a tensor, with the operation of that view."""


def slice_of(node: fx.Node) -> tuple[fx.Node, int, int] | None:
    """Return (source, dim, index) if `node` is a slice with a constant index, such as `x[0]`; else None."""
    picked_from: Any = node.args[0] if node.target is operator.getitem else None
    if operation(node) == "aten.select.int":
        source, dim, index = cast("tuple[fx.Node, int, Any]", node.args)
    elif isinstance(picked_from, fx.Node) and operation(picked_from) == "aten.unbind.int":
        source, index = cast("tuple[fx.Node, int]", (picked_from.args[0], node.args[1]))
        dim = argument(picked_from, 1, "dim", 0)
    else:
        return None
    size: Any = fake_value(source).shape[dim]
    if not isinstance(index, int) or (index < 0 and not isinstance(size, int)):
        return None
    return source, dim % fake_value(source).dim(), index if index >= 0 else index + size


def fake_value(node: Any) -> torch.Tensor:
    """Return the example tensor of a node."""
    return node.meta["val"]


def is_zero(node: fx.Node) -> bool:
    """Return True if a node is a tensor created as zeros."""
    while aliases_first(node):
        node = args_of(node)[0]
    place = {"aten.full.default": 1, "aten.scalar_tensor.default": 0}.get(operation(node))
    return place is not None and bool(node.args[place] == 0)


REDUCTION_KINDS = {
    "aten.sum": "sum",
    "aten.mean": "sum",
    "aten.amax": "max",
    "aten.amin": "min",
    "aten.prod": "prod",
    "aten.any": "any",
    "aten.all": "all",
    "prims.sum": "sum",
    "prims.amax": "max",
    "prims.amin": "min",
    "prims.prod": "prod",
    "aten.argmax": "argmax",
    "aten.argmin": "argmin",
    "aten.var_mean": "var_mean",
    "aten.var": "var_mean",
    "prims.var": "var_mean",
}


MAX_UNROLLED = 4
"""The most elements of a sum that is unrolled."""


def is_reduction(node: fx.Node) -> bool:
    """Return True if a node reduces dimensions with more than one element."""
    if operation(node).rpartition(".")[0] not in REDUCTION_KINDS:
        return False
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    return count(shape) != 0 and count(shape[d] for d in reduced_dimensions(node)) != 1


def is_unrolled(node: fx.Node) -> bool:
    """Return True if kernels compute a sum of a few elements, such as coordinates, like any element-wise operation.

    The elements are those of the last dimension, and nothing else needs them: they would be recomputed.
    """
    if not is_reduction(node) or REDUCTION_KINDS[operation(node).rpartition(".")[0]] != "sum":
        return False
    source: Any = args_of(node)[0]
    *_, size = shape_of(source)
    is_few = reduced_dimensions(node) == (len(shape_of(source)) - 1,) and size.is_Integer and size <= MAX_UNROLLED
    return bool(is_few) and (source.op == "placeholder" or len(source.users) == 1)


def is_anchor_reduction(node: fx.Node) -> bool:
    """Return True if a node is the result of a reduction that a kernel runs over all elements of."""
    source = node.args[0] if node.target is operator.getitem else node
    is_anchor = isinstance(source, fx.Node) and is_reduction(source) and not is_unrolled(source)
    return is_anchor and not has_several_results(node)


def reduced_dimensions(node: fx.Node) -> tuple[int, ...]:
    """Return the dimensions that a reduction reduces, in order."""
    source: Any = args_of(node)[0]
    rank = len(shape_of(source))
    dims = argument(node, 1, "dim")
    if not rank:
        return ()
    if isinstance(dims, bool) or dims is None or dims == [] or isinstance(dims, torch.dtype):
        return tuple(range(rank))
    return tuple(sorted({dimension(d, rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])}))


def is_scan(node: fx.Node) -> bool:
    """Return True if a node is a cumulative reduction."""
    return operation(node) in ("aten.cumsum.default", "aten.cumprod.default")


def scanned_dimension(node: fx.Node) -> int:
    """Return the dimension along which a scan runs."""
    return dimension(args_of(node)[1], len(shape_of(node)))


def matmul_operands(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    """Return the two tensors that a matmul multiplies."""
    left, right = args_of(node)[1:3] if "add" in operation(node) else args_of(node)[:2]
    return left, right


def backward_nodes(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes of a joint graph that depend on gradients."""
    dependents: set[fx.Node] = set()
    for node in graph.nodes:
        if is_tangent(node) or any(i in dependents for i in node.all_input_nodes):
            dependents.add(node)
    return dependents


def is_tangent(node: fx.Node) -> bool:
    """Return True if a node is an input for the gradient of a result."""
    return node.op == "placeholder" and "tangent" in str(node.target)


_RESHAPES = ("view", "_unsafe_view", "reshape", "clone", "unsqueeze", "squeeze", "alias", "detach")


def layout_step(node: fx.Node) -> LayoutStep | None:
    """Return the movement of all elements from a node's first argument, or None if it does something else."""
    name = operation(node).split(".")
    if len(name) < 3 or name[0] != "aten" or not isinstance(node.meta.get("val"), torch.Tensor):
        return None
    source: Any = node.args[0]
    if name[1] in _RESHAPES:
        return Reshape(shape_of(source), shape_of(node))
    rank = len(shape_of(node))
    if name[1] == "permute":
        dims: Any = node.args[1]
        return Permute(tuple(d % rank for d in dims))
    if name[1] in ("t", "transpose", "mT") and rank >= 2:
        swapped_dims: Any = node.args[1:] if name[1] == "transpose" else (-1, -2)
        first, second = (d % rank for d in swapped_dims)
        swapped = {first: second, second: first}
        return Permute(tuple(swapped.get(d, d) for d in range(rank)))
    return None


def buffer_of(node: fx.Node, name: str) -> Buffer:
    """Return a tensor with its memory layout, existing or created by kernels."""
    value = node.meta["val"]
    shape = tuple(expression(s) for s in value.shape)
    strides: Coords = tuple(expression(s) for s in value.stride())
    made_here = node.op == "call_function" and node.target is not operator.getitem and not is_view(node)
    if made_here and any(stride == 0 and size != 1 for stride, size in zip(strides, shape, strict=True)):
        strides = contiguous_strides(shape)
    return Buffer(name, value.dtype, shape, strides)


def stays_call(node: fx.Node) -> bool:
    """Return True if a node is called as it is; an empty tensor is only allocated."""
    if is_empty(node):
        return True
    if node.target is operator.getitem or facts_of(node).scatter_sum or facts_of(node).in_place:
        return False
    if lowering_of(node) is not None:
        return not has_only_dense(node)
    return any(isinstance(v, torch.Tensor) for v in _fake_values(node)) or not _fake_values(node)


def has_only_dense(node: fx.Node) -> bool:
    """Return True if a node and its inputs are dense tensors of dtypes that Triton supports, or no tensors."""
    return not any(_is_not_dense(v) for n in (node, *node.all_input_nodes) for v in _fake_values(n))


def _is_not_dense(value: Any) -> bool:
    """Return True if a value is not a dense tensor of a dtype that Triton supports."""
    if not isinstance(value, torch.Tensor):
        return False
    return (
        value.dtype.is_complex
        or value.layout is not torch.strided
        or (value.dtype.is_floating_point and value.itemsize == 1)
    )


def _fake_values(node: fx.Node) -> list[Any]:
    value = node.meta.get("val")
    return list(value) if isinstance(value, (tuple, list)) else [] if value is None else [value]
