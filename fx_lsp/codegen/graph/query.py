"""Questions about the nodes of a graph: shapes, arguments, views, slices, reductions."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import fx

from fx_lsp.codegen.ir.index import Coords, contiguous_strides, count, expression
from fx_lsp.codegen.ir.ops import aliases_first, args_of, lowering_of, operation
from fx_lsp.codegen.ir.values import Buffer
from fx_lsp.codegen.ir.write_target import Permute, Reshape, Step


def is_free(node: fx.Node) -> bool:
    """Whether a node computes nothing: it is a view, or picks a result of something with several."""
    return not operation(node) or aliases_first(node)


def is_empty(node: fx.Node) -> bool:
    """Whether a node makes a tensor without elements."""
    value = node.meta.get("val")
    return node.op == "call_function" and isinstance(value, torch.Tensor) and any(s == 0 for s in expressions(value))


def expressions(value: torch.Tensor) -> Coords:
    """The shape of a tensor, as expressions."""
    return tuple(expression(s) for s in value.shape)


def constant_of(node: fx.Node) -> torch.Tensor | None:
    """The tensor that a graph has among its attributes under the name of a node, if there is one."""
    module = node.graph.owning_module
    value = getattr(module, str(node.target), None) if node.op == "get_attr" else None
    return value if isinstance(value, torch.Tensor) else None


def shape_of(node: fx.Node, part: int | None = None) -> Coords:
    """The shape of what a node computes, as expressions."""
    value = node.meta["val"]
    if part is not None and isinstance(value, (tuple, list)):
        value = value[part]
    return expressions(value)


def dimension(value: Any, rank: int) -> int:
    """A dimension that may count from the end."""
    return int(value) % rank if rank else 0


def argument(node: fx.Node, position: int, name: str, default: Any = None) -> Any:
    """An argument of a node, by position or by name."""
    return args_of(node)[position] if len(args_of(node)) > position else node.kwargs.get(name, default)


def has_several(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (tuple, list))


def is_view(node: fx.Node) -> bool:
    """Whether a node shares the memory of its first argument."""
    return aliases_first(node) and not has_several(node) and "reshape" not in operation(node)


def views(node: fx.Node) -> Iterator[fx.Node]:
    """A node, what it is a view of, and so on."""
    yield node
    while node.op == "call_function" and is_view(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
        yield node


def slice_of(node: fx.Node) -> tuple[fx.Node, int, int] | None:
    """Of what a node is a slice, along which dimension, and which; None where it is none whose number is known."""
    taken: Any = node.args[0] if node.target is operator.getitem else None
    if operation(node) == "aten.select.int":
        source, dim, index = cast("tuple[fx.Node, int, Any]", node.args)
    elif isinstance(taken, fx.Node) and operation(taken) == "aten.unbind.int":
        source, index = cast("tuple[fx.Node, int]", (taken.args[0], node.args[1]))
        dim = argument(taken, 1, "dim", 0)
    else:
        return None
    size: Any = value_of(source).shape[dim]
    if not isinstance(index, int) or (index < 0 and not isinstance(size, int)):
        return None
    return source, dim % value_of(source).dim(), index if index >= 0 else index + size


def value_of(node: Any) -> torch.Tensor:
    """The tensor that a node is, as it was traced."""
    return node.meta["val"]


def is_zero(node: fx.Node) -> bool:
    """Whether a node is a tensor of zeros that was made as such."""
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


def is_reduction(node: fx.Node) -> bool:
    """Whether a node reduces dimensions, which have more than one element."""
    if operation(node).rpartition(".")[0] not in REDUCTION_KINDS:
        return False
    source: Any = args_of(node)[0]
    shape = shape_of(source)
    return count(shape) != 0 and count(shape[d] for d in reduced_dimensions(node)) != 1


def reduced_dimensions(node: fx.Node) -> tuple[int, ...]:
    """The dimensions that a reduction reduces, in order."""
    source: Any = args_of(node)[0]
    rank = len(shape_of(source))
    dims = argument(node, 1, "dim")
    if not rank:
        return ()
    if isinstance(dims, bool) or dims is None or dims == [] or isinstance(dims, torch.dtype):
        return tuple(range(rank))
    return tuple(sorted({dimension(d, rank) for d in (dims if isinstance(dims, (list, tuple)) else [dims])}))


def is_scan(node: fx.Node) -> bool:
    """Whether a node has the running results of a reduction."""
    return operation(node) in ("aten.cumsum.default", "aten.cumprod.default")


def scanned_dimension(node: fx.Node) -> int:
    """The dimension along which a scan runs."""
    return dimension(args_of(node)[1], len(shape_of(node)))


def dependents(graph: fx.Graph) -> set[fx.Node]:
    """The nodes of a joint graph that depend on gradients."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if (node.op == "placeholder" and "tangent" in str(node.target)) or any(
            i in found for i in node.all_input_nodes
        ):
            found.add(node)
    return found


_RESHAPES = ("view", "_unsafe_view", "reshape", "clone", "unsqueeze", "squeeze", "alias", "detach")


def step_of(node: fx.Node) -> Step | None:
    """What a node does to each element of its first argument, or None where it is no mere move of all of them."""
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
        given: Any = node.args[1:] if name[1] == "transpose" else (-1, -2)
        first, second = (d % rank for d in given)
        swapped = {first: second, second: first}
        return Permute(tuple(swapped.get(d, d) for d in range(rank)))
    return None


def buffer_of(node: fx.Node, name: str) -> Buffer:
    """A tensor as it lies in memory, or will where kernels make it."""
    value = node.meta["val"]
    shape = tuple(expression(s) for s in value.shape)
    strides: Coords = tuple(expression(s) for s in value.stride())
    made_here = node.op == "call_function" and node.target is not operator.getitem and not is_view(node)
    if made_here and any(stride == 0 and size != 1 for stride, size in zip(strides, shape, strict=True)):
        strides = contiguous_strides(shape)
    return Buffer(name, value.dtype, shape, strides)


SCATTER_KEY = "fx_lsp_sum"
"""What nodes have in their `meta` that `is_sum` knows."""


def is_sum(node: fx.Node) -> bool:
    """Whether a node is a sum that a kernel adds up with atomic operations."""
    return SCATTER_KEY in node.meta


def stays(node: fx.Node) -> bool:
    """Whether a node is called as it is; what has no elements is only allocated."""
    if is_empty(node):
        return True
    if node.target is operator.getitem or is_sum(node):
        return False
    if lowering_of(node) is not None:
        return any(_strange(v) for n in (node, *node.all_input_nodes) for v in _values(n))
    return any(isinstance(v, torch.Tensor) for v in _values(node)) or not _values(node)


def _strange(value: Any) -> bool:
    """Whether a value is no dense tensor of numbers that Triton has."""
    if not isinstance(value, torch.Tensor):
        return False
    return (
        value.dtype.is_complex
        or value.layout is not torch.strided
        or (value.dtype.is_floating_point and value.itemsize == 1)
    )


def _values(node: fx.Node) -> list[Any]:
    value = node.meta.get("val")
    return list(value) if isinstance(value, (tuple, list)) else [] if value is None else [value]
