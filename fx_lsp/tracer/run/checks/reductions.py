"""Find reductions over a dimension that has one element for any inputs: their results are constant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from fx_lsp.messages.findings import CONSTANT_OVER_ONE_ELEMENT, NAN_OF_ONE_ELEMENT, NORM_OF_ONE_ELEMENT, ONE_CLASS
from fx_lsp.model import Remark
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.run.torch_calls import TorchCall, tensors_among

_CONSTANT = {"softmax": "1", "log_softmax": "0", "softmin": "1", "gumbel_softmax": "1", "argmax": "0", "argmin": "0"}
"""The value of every element of the result over a dimension of one element, by the name of the call."""
_SPREADS = frozenset({"std", "var", "std_mean", "var_mean"})
_LAYERS = frozenset({"linear", *(f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3))})
_SAME_PLACES = frozenset(
    {"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "batch_norm", "masked_fill"}
)


class SingleElements:
    """Track the dimensions that have one element because of weights and indexing, for any sizes of the inputs."""

    def __init__(self) -> None:
        self._single = WeakTensorKeyDictionary()

    def __call__(self, call: TorchCall) -> Iterator[Remark]:
        """Yield a remark on a reduction over such a dimension."""
        if call.caller != "library" and (remark := self._remark(call)) is not None:
            yield remark
        if isinstance(call.result, torch.Tensor) and (dims := self._dims(call, call.result)):
            self._single[call.result] = dims

    def _remark(self, call: TorchCall) -> Remark | None:
        tensor, span = call.args[0] if call.args else None, call.chain[0]
        if not isinstance(tensor, torch.Tensor):
            return None
        name, single = call.name, self._of(tensor)
        if name == "cross_entropy" and tensor.dim() > 1 and 1 - tensor.dim() in single:
            return ONE_CLASS.remark(span, tensor=spec_of(tensor))
        if name == "layer_norm" and call.argument(1, "normalized_shape") in ((1,), [1]):
            return NORM_OF_ONE_ELEMENT.remark(span, tensor=spec_of(tensor))
        dim = call.argument(1, "dim", call.kwargs.get("axis"))
        if type(dim) is not int or _from_the_end(dim, tensor) not in single:
            return None
        if name in _CONSTANT:
            return CONSTANT_OVER_ONE_ELEMENT.remark(
                span, function=name, value=_CONSTANT[name], tensor=spec_of(tensor), dim=dim
            )
        if name in _SPREADS and call.kwargs.get("correction", 1) == 1 and call.argument(2, "unbiased", True) is True:
            return NAN_OF_ONE_ELEMENT.remark(span, function=name, tensor=spec_of(tensor), dim=dim)
        return None

    def _dims(self, call: TorchCall, result: torch.Tensor) -> frozenset[int]:
        """Return the dimensions of a result, counted from the end, that have one element for any inputs."""
        name = call.name
        if name in _LAYERS and len(call.args) > 1 and isinstance(call.args[1], torch.Tensor):
            weight = call.args[1]
            outputs = weight.shape[1] if "transpose" in name else weight.shape[0]
            return frozenset({1 - weight.dim() if weight.dim() > 2 else -1}) if _is_one(outputs) else frozenset()
        if name == "unsqueeze" and type(dim := call.argument(1, "dim")) is int:
            return frozenset({_from_the_end(dim, result)})
        if name in _SAME_PLACES or _is_pointwise(name):
            alike = [t for t in tensors_among(call.args, call.kwargs) if t.shape == result.shape]
            return frozenset[int]().union(*map(self._of, alike))
        return frozenset()

    def _of(self, tensor: torch.Tensor) -> frozenset[int]:
        return self._single.get(tensor) or frozenset()


def _from_the_end(dim: int, tensor: torch.Tensor) -> int:
    return dim - tensor.dim() if dim >= 0 else dim


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _is_pointwise(name: str) -> bool:
    """Return True if each element of a call's result depends only on the elements at the same place."""
    packet = getattr(torch.ops.aten, name.strip("_"), None)
    return packet is not None and any(torch.Tag.pointwise in getattr(packet, o).tags for o in packet.overloads())
