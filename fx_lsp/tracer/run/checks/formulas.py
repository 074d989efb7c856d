"""Find operators without an autograd formula where a gradient has to flow through them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from fx_lsp.messages.findings import NO_FORMULA_DROPS, NO_FORMULA_RAISES
from fx_lsp.model import Remark
from fx_lsp.tracer.run.torch_calls import TorchCall, tensors_among

_DIFFERENTIATES = ("Autograd", "CompositeImplicitAutograd", *(f"Autograd{d}" for d in ("CPU", "CUDA", "XPU", "Meta")))
"""The dispatch keys with which an operator has a formula, or consists of operations that have one."""


def operators_without_formula(call: TorchCall) -> Iterator[Remark]:
    """Yield a remark on a call of an operator that a gradient has to flow through and that has no autograd formula.

    Such an operator computes a floating-point result from an operand that requires a gradient. Without a kernel for
    autograd, PyTorch calls the operator's kernel as it is, with a warning in backward. An operator that
    `torch.library.custom_op` defines raises in backward.
    """
    if not isinstance(call.func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return
    needs = torch.is_grad_enabled() and any(t.requires_grad for t in tensors_among(call.args, call.kwargs))
    if not needs or not any(_is_float(leaf) for leaf in tree_leaves(call.result)):
        return
    packet = call.func if isinstance(call.func, torch._ops.OpOverloadPacket) else call.func.overloadpacket
    name = packet._qualified_op_name
    raises = _is_defined_without(name)
    if raises or not _has_kernel(packet):
        template = NO_FORMULA_RAISES if raises else NO_FORMULA_DROPS
        yield template.remark(call.chain[0], operator=name.replace("::", "."))


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _has_kernel(packet: torch._ops.OpOverloadPacket) -> bool:
    """Return True if an overload of an operator has a kernel that differentiates it."""
    has: Any = torch._C._dispatch_has_kernel_for_dispatch_key
    names: Any = [getattr(packet, overload)._schema for overload in packet.overloads()]
    return any(has(_full_name(schema), key) for schema in names for key in _DIFFERENTIATES)


def _full_name(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def _is_defined_without(name: str) -> bool:
    """Return True if `torch.library.custom_op` defines an operator and no formula is registered for it."""
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:
        return False
    definition: Any = OPDEFS.get(name)
    return definition is not None and definition._backward_fn is None
