"""Say why the min-cut partitioner saves a value instead of recomputing it in backward."""

from __future__ import annotations

import operator
from functools import lru_cache

import torch
from torch import fx
from torch.utils.checkpoint import CheckpointPolicy

from fx_lsp.model import WhySaved
from fx_lsp.tracer.capture.node_values import is_view, stored_bytes
from fx_lsp.tracer.compat import OpTypes, default_op_types

_LEAST_REDUCTION = 4
"""How many times smaller than its inputs a result is, at least, for the partitioner to take it for a reduction."""


def why_saved(node: fx.Node) -> WhySaved:
    """Return why a value of the forward graph is saved: the rule of `should_ban_recomputation` in
    `torch._functorch.partitioners` that forbids its recomputation, or "cut" if none does.
    """
    while _selects(node):
        node = node.all_input_nodes[0]
    if node.op != "call_function":
        return ""
    types = _op_types()
    if node.meta.get("recompute") == CheckpointPolicy.MUST_SAVE:
        return "policy"
    if types.is_random(node):
        return "random"
    if types.is_compute_intensive(node):
        return "product"
    if not types.is_recomputable(node):
        return "unlisted"
    read = sum(_bytes(source) for source in node.all_input_nodes)
    return "reduction" if _LEAST_REDUCTION * _bytes(node) < read else "cut"


@lru_cache(maxsize=1)
def _op_types() -> OpTypes:
    return default_op_types()


def _selects(node: fx.Node) -> bool:
    """Return True for a view of a value, and for one of several results."""
    return node.op == "call_function" and (is_view(node.target) or node.target is operator.getitem)


def _bytes(node: fx.Node) -> int:
    value = node.meta.get("val")
    return stored_bytes(value) if isinstance(value, torch.Tensor) else 0
