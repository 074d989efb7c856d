"""Makes a process ready to trace: imports what tracing needs, and traces a small function once."""

from __future__ import annotations

import importlib
import sys

from fx_lsp.model import TraceRequest

MODULES = ("torch.nn.functional", "torch._dynamo", "torch._functorch.aot_autograd", "fx_lsp.tracer.job")
_NAME = "fx_lsp_rehearsal"
_SOURCE = """
import torch
import torch.nn.functional as F

class Block(torch.nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.fc = torch.nn.Linear(dim, dim)

    def forward(self, x):
        y = F.layer_norm(self.fc(x), (4,))
        return torch.softmax(y.view(2, 2, 4).transpose(0, 1) @ self.fc.weight, -1).sum() * 2 + y.mean()
"""


def warm() -> None:
    """Import torch and AOTAutograd and rehearse once, so that children inherit both.

    Raises ImportError where the interpreter has no usable torch.
    """
    for module in MODULES:
        importlib.import_module(module)
    rehearse()


def rehearse() -> None:
    """Trace a small module. A forked process that has done so owns the memory that tracing writes to."""
    from fx_lsp.tracer.job import run

    comment = "x=f32[4, 4]"
    run(TraceRequest(f"<{_NAME}>", "Block", "module", _SOURCE, _SOURCE, _NAME, "", (), comment))
    sys.modules.pop(_NAME, None)
