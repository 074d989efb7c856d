"""Read the example values of nodes of an FX graph."""

from __future__ import annotations

import math
from typing import Any

import torch

from fx_lsp.tracer.run.values.symbols import expressions, size_hint


def value_of(node: torch.fx.Node) -> Any:
    """Return the example value of a node, from AOTAutograd or from Dynamo; None without one."""
    return node.meta.get("val", node.meta.get("example_value"))


def stored_bytes(value: torch.Tensor) -> int:
    """Return the bytes of the elements that a tensor has in memory; an expanded dimension has one element."""
    strides = expressions(value.stride()) if value.layout is torch.strided else [1] * value.dim()
    sizes = (size_hint(size) for size, stride in zip(value.shape, strides, strict=True) if stride != 0)
    return math.prod(sizes, start=value.element_size())


def is_view(target: Any) -> bool:
    """Return True if an operation returns another view of its first operand's memory."""
    if not isinstance(target, torch._ops.OpOverload) or not target._schema.arguments:
        return False
    alias = target._schema.arguments[0].alias_info
    return target.overloadpacket is torch.ops.aten._unsafe_view or (alias is not None and not alias.is_write)
