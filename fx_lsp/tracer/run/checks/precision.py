"""Find operands of several precisions, whose result and all that follows has the widest; calls that copy although they
read like views; and conversions without effect.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

from fx_lsp.messages.findings import COPIES, NO_EFFECT, UPCASTS
from fx_lsp.model import Remark
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.run.torch_calls import TorchCall, tensors_among

_LIKE_VIEWS = frozenset({"reshape", "flatten", "unflatten", "contiguous", "reshape_as", "ravel"})
_OF_DTYPE = frozenset({"float", "double", "half", "bfloat16", "int", "long", "bool", "type", "type_as"})
_CASTS = frozenset({"to", "type", "type_as", "float", "double", "half", "bfloat16", "__array__"})


class Precision:
    """Track which tensors have a dtype that the code requests, and which a default one.

    A wide operand that was cast is meant to be wide. One narrower than 64 bits is only reported if its dtype is a
    default: that of a parameter, or of a tensor created without a dtype.
    """

    def __init__(self) -> None:
        self._chosen, self._by_default = WeakTensorKeyDictionary(), WeakTensorKeyDictionary()

    def __call__(self, call: TorchCall) -> Iterator[Remark]:
        """Yield a remark on a call whose result is wider than one of its operands without a request for that."""
        result = call.result
        if not isinstance(result, torch.Tensor) or not result.is_floating_point():
            return
        operands = list(tensors_among(call.args, call.kwargs))
        alike = [tensor for tensor in operands if tensor.dtype is result.dtype]
        self._note(call, result, alike)
        narrow = next((tensor for tensor in operands if _is_narrower(tensor, result)), None)
        wide = next((tensor for tensor in alike if tensor.dim() > 0), None)
        if result in self._chosen or narrow is None or wide is None:
            return
        self._chosen[result] = True  # values computed from it are not separate mistakes
        is_meant = call.caller == "library" or torch.is_autocast_enabled(result.device.type)
        if not is_meant and (result.dtype is torch.float64 or self._is_by_default(wide)):
            yield UPCASTS.remark(
                call.chain[0],
                narrow=spec_of(narrow),
                wide=spec_of(wide),
                result=spec_of(result),
                dtype=str(result.dtype).removeprefix("torch."),
            )

    def _note(self, call: TorchCall, result: torch.Tensor, alike: list[torch.Tensor]) -> None:
        """Record the origin of a result's dtype; `alike` are the operands with the same dtype."""
        is_cast = call.name in _CASTS or isinstance(call.kwargs.get("dtype"), torch.dtype)
        if is_cast or any(tensor in self._chosen for tensor in alike):
            self._chosen[result] = True
        elif all(self._is_by_default(tensor) for tensor in alike):
            self._by_default[result] = True

    def _is_by_default(self, tensor: torch.Tensor) -> bool:
        return tensor in self._by_default or isinstance(tensor, nn.Parameter)


def _is_narrower(tensor: torch.Tensor, result: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() > 0 and tensor.dtype.itemsize < result.dtype.itemsize


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
