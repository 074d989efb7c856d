"""Makes a process ready to trace: imports what tracing needs, and traces a small function once."""

from __future__ import annotations

import importlib
import sys
from contextlib import suppress

from fx_lsp.model import Given, TraceRequest

MODULES = ("torch.nn.functional", "torch._dynamo", "torch._functorch.aot_autograd", "fx_lsp.tracer.job")
LAZY_MODULES = ("torch._functorch.compilers", "torch._inductor.compile_fx")
"""What the partitioner imports when it first runs; not every torch has them."""
_NAME = "fx_lsp_rehearsal"
_SOURCE = """
import torch
import torch.nn.functional as F

class Training(torch.nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.fc = torch.nn.Linear(dim, dim)

    def forward(self, x):
        y = F.layer_norm(self.fc(x), (4,))
        return torch.softmax(y.view(2, 2, 4).transpose(0, 1) @ self.fc.weight, -1).sum() * 2 + y.mean()

class Inference(Training):
    @torch.no_grad()
    def forward(self, x):
        return super().forward(x)
"""


def warm() -> None:
    """Import torch and AOTAutograd and trace once, so that forked processes inherit both.

    No backward is traced: autograd's engine starts threads where torch has device support, and a process that was
    forked from one with such threads may not differentiate. Raises ImportError where there is no usable torch.
    """
    for module in MODULES:
        importlib.import_module(module)
    for module in LAZY_MODULES:
        with suppress(ImportError):
            importlib.import_module(module)
    _trace("Inference")


def rehearse() -> None:
    """Trace a small module, backward included. A process that has done so owns the memory that tracing writes to."""
    _trace("Training")


def _trace(name: str) -> None:
    from fx_lsp.tracer.job import run

    given = Given("x=f32[4, 4]", "comment")
    run(TraceRequest(f"<{_NAME}>", name, "module", _SOURCE, _SOURCE, _NAME, "", (), (given,)))
    sys.modules.pop(_NAME, None)
