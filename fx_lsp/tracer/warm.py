"""Makes a process ready to fork tracers: imports what tracing needs and runs it once."""

from __future__ import annotations

import importlib

MODULES = ("torch.nn.functional", "torch._dynamo", "torch._functorch.aot_autograd", "fx_lsp.tracer.job")


def warm() -> None:
    """Import torch and AOTAutograd and trace a tiny function, so that children inherit both.

    Raises ImportError where the interpreter has no usable torch.
    """
    for module in MODULES:
        importlib.import_module(module)
    import torch

    from fx_lsp.tracer.call import Call
    from fx_lsp.tracer.capture import capture, stages
    from fx_lsp.tracer.compat import FakeTensorMode
    from fx_lsp.tracer.graphs import Names
    from fx_lsp.tracer.provenance import Sources

    def tiny(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.layer_norm(torch.nn.functional.linear(x, w, b), (4,))
        return torch.softmax(y.view(2, 2, 4).transpose(0, 1), -1).sum() * 2 + y.mean()

    sources = Sources(__file__, None)
    with FakeTensorMode():
        tensors = (torch.empty(4, 4), torch.empty(4, 4), torch.empty(4))
    call = Call(tiny, tuple(t.requires_grad_() for t in tensors))
    stages(capture(call, sources, Names(sources, {})))
