"""Find places where the host waits for the device, so that it cannot prepare the next operations meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from fx_lsp.messages.findings import WAITS_FOR_COPY, WAITS_FOR_PRINT, WAITS_FOR_SIZE, WAITS_FOR_VALUES
from fx_lsp.model import Remark
from fx_lsp.tracer.run.torch_calls import TorchCall
from fx_lsp.tracer.run.values.reads import reads_heard
from fx_lsp.tracer.source.provenance import Chain

_SIZES = frozenset({"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount"})
_SHOWING = frozenset({"__repr__", "__format__"})


def waits(call: TorchCall) -> Iterator[Remark]:
    """Yield a remark on a call in the user's code that copies a tensor to the host, or whose result has a
    data-dependent size.
    """
    if call.caller == "code" and call.name == "cpu":
        yield WAITS_FOR_COPY.remark(call.chain[0])
    elif call.caller == "code" and (call.name in _SIZES or _is_mask(call)):
        yield WAITS_FOR_SIZE.remark(call.chain[0])


@contextmanager
def reads_told(chain: Callable[[FrameType], Chain], tell: Callable[[Remark], None]) -> Generator[None, None, None]:
    """Report, inside, where Python reads a tensor's values; `chain` returns the user's expressions of a frame."""

    def hear(frame: FrameType, name: str) -> None:
        template = WAITS_FOR_PRINT if name in _SHOWING else WAITS_FOR_VALUES
        if spans := chain(frame):
            tell(template.remark(spans[0]))

    with reads_heard(hear):
        yield


def _is_mask(call: TorchCall) -> bool:
    index = call.args[1] if call.name == "__getitem__" and len(call.args) > 1 else None
    parts = index if isinstance(index, tuple) else (index,)
    return any(isinstance(part, torch.Tensor) and part.dtype is torch.bool for part in parts)
