"""Find losses that get logits, probabilities or their logarithms where they take another of these.

Such a loss runs, and is too flat, or of the wrong sign. What a loss takes is stated on its page in PyTorch's
documentation; what a tensor means is known from the operation that made it, through changes of its shape and dtype.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from fx_lsp.messages.findings import LOSS_TAKES, MADE_HERE
from fx_lsp.model import Related, Remark, Span
from fx_lsp.tracer.run.torch_calls import TorchCall

Meaning: TypeAlias = Literal["logits", "probabilities", "log-probabilities"]

_MAKES: Mapping[str, Meaning] = {
    "linear": "logits",
    "bilinear": "logits",
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), "logits"),
    **dict.fromkeys(("softmax", "softmin", "sigmoid", "gumbel_softmax"), "probabilities"),
    **dict.fromkeys(("log_softmax", "logsigmoid"), "log-probabilities"),
}
"""The meaning of the result of a function."""
_CHANGES: Mapping[tuple[str, Meaning | None], Meaning] = {
    ("log", "probabilities"): "log-probabilities",
    ("exp", "log-probabilities"): "probabilities",
}
_KEEPS = frozenset(
    {"view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "transpose", "permute", "movedim", "t"}
    | {"contiguous", "clone", "float", "double", "half", "bfloat16", "to", "type_as", "getitem", "gather"}
    | {"clamp", "clip", "cpu", "cuda", "index_select", "select", "narrow", "masked_select"}
)
"""Functions whose result has the meaning of their first operand."""
_TAKES: Mapping[str, tuple[tuple[int, str, Meaning], ...]] = {
    "cross_entropy": ((0, "input", "logits"),),
    "nll_loss": ((0, "input", "log-probabilities"),),
    "binary_cross_entropy": ((0, "input", "probabilities"),),
    "binary_cross_entropy_with_logits": ((0, "input", "logits"),),
    "multilabel_soft_margin_loss": ((0, "input", "logits"),),
    "ctc_loss": ((0, "log_probs", "log-probabilities"),),
    "kl_div": ((0, "input", "log-probabilities"), (1, "target", "probabilities")),
}
"""What losses take: the position, the name and the meaning of an argument."""
_HARMLESS = frozenset({("logits", "log-probabilities")})
"""A softmax does not change logarithms of probabilities."""


@dataclass(frozen=True)
class _Made:
    meaning: Meaning
    by: str
    span: Span


class Losses:
    """Track what the tensors of one run mean."""

    def __init__(self) -> None:
        self._made = WeakTensorKeyDictionary()

    def __call__(self, call: TorchCall) -> Iterator[Remark]:
        """Yield a remark on a loss that takes something else than it gets."""
        name = call.name.strip("_")
        for position, argument, takes in _TAKES.get(name, ()):
            origin = self._of(call.argument(position, argument))
            wanted = "log-probabilities" if argument == "target" and call.kwargs.get("log_target") else takes
            if origin is not None and origin.meaning != wanted and (wanted, origin.meaning) not in _HARMLESS:
                related = (Related(origin.span, MADE_HERE.format(function=origin.by, meaning=origin.meaning)),)
                yield LOSS_TAKES.remark(
                    call.chain[0],
                    related=related,
                    loss=name,
                    argument=argument,
                    wanted=wanted,
                    meaning=origin.meaning,
                    function=origin.by,
                )
        if isinstance(call.result, torch.Tensor):
            now = self._meaning(call, name)
            if now is not None:
                self._made[call.result] = now
            else:  # an operation in place returns a tensor that may have had a meaning
                self._made.pop(call.result, None)

    def _meaning(self, call: TorchCall, name: str) -> _Made | None:
        before = self._of(call.args[0]) if call.args else None
        meaning = _MAKES.get(name) or _CHANGES.get((name, before.meaning if before is not None else None))
        if meaning is not None:
            return _Made(meaning, name, call.chain[0])
        return before if name in _KEEPS else None

    def _of(self, tensor: object) -> _Made | None:
        return self._made.get(tensor) if isinstance(tensor, torch.Tensor) else None
