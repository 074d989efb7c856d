"""Compute the cost of an operation: its floating-point operations, and the bytes that it reads, writes and sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import torch
import torch.distributed as dist
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


_COLLECTIVES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd"})
"""The namespaces of operators that all processes of a group run together."""
_ROUNDS = {"allreduce": 2, "allgather": 1, "reducescatter": 1, "alltoall": 1}
"""How often a collective sends all but the n-th part of its data in a group of n processes, by the start of its
name.
"""


def is_collective(target: Any) -> bool:
    """Return True for an operator that all processes of a group run together, except for those that wait for one."""
    is_of_group = isinstance(target, torch._ops.OpOverload) and target.namespace in _COLLECTIVES
    return is_of_group and "wait" not in target._schema.name


def sent_bytes(node: torch.fx.Node) -> int:
    """Return the bytes that a process sends in a collective on a ring of n processes: 2(n-1)/n of the data to reduce
    it for all, (n-1)/n to gather, scatter or exchange it, all of it to broadcast it.

    The data is the larger of operands and results. These are the factors between the two bandwidths of NCCL's tests
    (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). Zero for anything else, and if the size of
    the group is unknown.
    """
    if not is_collective(node.target):
        return 0
    name = node.target._schema.name.partition("::")[2].replace("_", "")  # type: ignore[union-attr]
    size = _group_size(node)
    rounds = next((rounds for start, rounds in _ROUNDS.items() if name.startswith(start)), 0)
    share = Fraction(rounds * (size - 1), size) if rounds else Fraction(int(size > 1 and name.startswith("broadcast")))
    operands = sum(stored_bytes(tensor) for used in node.all_input_nodes for tensor in _tensors(used))
    return int(max(operands, sum(map(stored_bytes, _tensors(node)))) * share)


def _group_size(node: torch.fx.Node) -> int:
    """Return the number of processes in the group of a collective; 1 if that is unknown."""
    schema: Sequence[Any] = node.target._schema.arguments  # type: ignore[union-attr]
    values = {argument.name: value for argument, value in zip(schema, node.args, strict=False)} | node.kwargs
    size, group = values.get("group_size"), values.get("group_name")
    if isinstance(size, int):
        return max(size, 1)
    try:
        return max(dist.distributed_c10d._resolve_process_group(group).size(), 1)  # type: ignore[arg-type]
    except Exception:  # there is no such group any more, or this PyTorch has none
        return 1


def _tensors(node: torch.fx.Node) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(value_of(node)) if isinstance(leaf, torch.Tensor))


def _of_numbers(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty([size_hint(size) for size in tensor.shape], dtype=tensor.dtype, device="meta")
