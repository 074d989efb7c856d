"""Compute the cost of an operation: its floating-point operations, and the bytes that it reads and writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from fx_lsp.tracer.capture.node_values import is_view, stored_bytes, value_of
from fx_lsp.tracer.run.values.symbols import size_hint

_ATEN = torch.ops.aten
_COUNTED_AS = {
    _ATEN._scaled_dot_product_flash_attention_for_cpu: _ATEN._scaled_dot_product_flash_attention,
    _ATEN._scaled_dot_product_flash_attention_for_cpu_backward: _ATEN._scaled_dot_product_flash_attention_backward,
}
"""Operations that PyTorch's counter omits, with equivalent ones that it counts."""


def flops_of(node: torch.fx.Node) -> int:
    """Return the floating-point operations of a node as PyTorch's `FlopCounterMode` counts them: two for each product
    that is summed in a matrix product, a convolution or an attention, zero for anything else.

    A named size counts as its hint, a data-dependent one as zero, and so does an operation whose operands do not fit.
    """
    target: Any = getattr(node.target, "overloadpacket", node.target)
    formula = flop_registry.get(_COUNTED_AS.get(target, target))
    if formula is None:
        return 0
    args, kwargs, result = tree_map_only(torch.fx.Node, value_of, (node.args, node.kwargs, node))
    args, kwargs, result = tree_map_only(torch.Tensor, _of_numbers, (args, kwargs, result))
    try:
        return int(formula(*args, **kwargs, out_val=result))
    except Exception:  # the operands do not fit, as a pass may leave them
        return 0


def moved_bytes(node: torch.fx.Node) -> int:
    """Return the bytes that a node reads and writes: those of the elements of its tensors, each tensor once.

    A view moves nothing; an expanded dimension has one element.
    """
    if not isinstance(node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)) or is_view(node.target):
        return 0
    return sum(stored_bytes(tensor) for used in (node, *node.all_input_nodes) for tensor in _tensors(used))


def _tensors(node: torch.fx.Node) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(value_of(node)) if isinstance(leaf, torch.Tensor))


def _of_numbers(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty([size_hint(size) for size in tensor.shape], dtype=tensor.dtype, device="meta")
