"""Identify operators without a fake kernel, and suggest the lines that register one."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import UnsupportedOperatorException

from fx_lsp.messages.exceptions import NO_FAKE_KERNEL
from fx_lsp.model import Failure
from fx_lsp.tracer.pytorch_texts import LACKS_FAKE


def runs_only_on_real_tensors(error: BaseException) -> bool:
    """Return True if an operator without a fake kernel was called, or PyTorch's own fake tensors failed."""
    return _operator(error) is not None or is_internal_to_fakes(error)


def is_internal_to_fakes(error: BaseException) -> bool:
    """Return True for an assertion of PyTorch's on its own fake tensors, which is independent of the code."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    module = traceback.tb_frame.f_globals.get("__name__", "") if traceback is not None else ""
    return isinstance(error, AssertionError) and module.startswith("torch._subclasses.")


def missing_kernel(error: BaseException) -> Failure | None:
    """Return the failure, without a place, for the operator of an error, if it lacks a fake kernel; else None."""
    op = _operator(error)
    if op is None:
        return None
    name = op._schema.name
    parameters = [argument.name for argument in op._schema.arguments]
    tensor = next((a.name for a in op._schema.arguments if str(a.type) == "Tensor"), None)
    returned = f"torch.empty_like({tensor})" if tensor is not None else "torch.empty(…)"
    results = len(op._schema.returns)
    returns = "pass" if results == 0 else f"return {', '.join([returned] * results)}"
    return NO_FAKE_KERNEL.failure(operator=name, parameters=", ".join(parameters), body=returns)


def is_custom(op: OpOverload) -> bool:
    """Return True for an operator that is not PyTorch's own."""
    return op.namespace not in _OWN


def _operator(error: BaseException) -> OpOverload | None:
    if isinstance(error, UnsupportedOperatorException):
        func: Any = error.args[0] if error.args else None
        return func if isinstance(func, OpOverload) and is_custom(func) else None
    match = LACKS_FAKE.search(str(error))
    return getattr(getattr(torch.ops, match[1]), match[2]).default if match is not None else None


_OWN = frozenset({"aten", "prims", "prim", "quantized", "higher_order", "_c10d_functional", "c10d", "fsdp", "rngprims"})
