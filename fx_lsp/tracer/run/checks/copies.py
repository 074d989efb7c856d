"""Find calls that copy although they read like views, and conversions without effect."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from fx_lsp.messages.findings import COPIES, NO_EFFECT
from fx_lsp.model import Remark
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.run.torch_calls import TorchCall

_LIKE_VIEWS = frozenset({"reshape", "flatten", "unflatten", "contiguous", "reshape_as", "ravel"})
_OF_DTYPE = frozenset({"float", "double", "half", "bfloat16", "int", "long", "bool", "type", "type_as"})


def copies(call: TorchCall) -> Iterator[Remark]:
    """Yield a remark on a call that copies its tensor, because the strides allow no view, or that returns the tensor
    itself.
    """
    tensor, result = call.args[0] if call.args else None, call.result
    if call.caller != "code" or not isinstance(tensor, torch.Tensor) or not isinstance(result, torch.Tensor):
        return
    if result is tensor and (call.name == "contiguous" or call.name in _OF_DTYPE or _is_to_dtype(call)):
        state = "contiguous" if call.name == "contiguous" else str(tensor.dtype).removeprefix("torch.")
        yield NO_EFFECT.remark(call.chain[0], state=state)
    elif call.name in _LIKE_VIEWS and not _share_memory(tensor, result):
        yield COPIES.remark(call.chain[0], tensor=spec_of(tensor), result=spec_of(result))


def _is_to_dtype(call: TorchCall) -> bool:
    others = (*call.args[1:], *call.kwargs.values())
    return call.name == "to" and bool(others) and all(isinstance(other, torch.dtype) for other in others)


def _share_memory(tensor: torch.Tensor, result: torch.Tensor) -> bool:
    return result is tensor or tensor.untyped_storage()._cdata == result.untyped_storage()._cdata
