"""Makes a process ready to trace: imports what tracing needs, and traces a small function once."""

from __future__ import annotations

import ast
import importlib
import operator
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from fx_lsp.errors import ProtocolError
from fx_lsp.model import Stage, TraceRequest, WrittenInputs
from fx_lsp.sandbox.limits import memory_limit
from fx_lsp.specs import parse_spec
from fx_lsp.wire import decode_stage

MODULES = ("torch.nn.functional", "torch._dynamo", "torch._functorch.aot_autograd", "fx_lsp.tracer.job")
PARTITIONER_MODULES = ("torch._inductor.pattern_matcher",)
"""Modules that the partitioner imports when it first runs; not every torch has them."""
COMPILER_MODULES = ("torch._functorch.compilers", "torch._inductor.compile_fx")
"""Modules that only the views of the compiler's passes need; not every torch has them."""
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


MAX_NODES = 1000
"""The number of nodes of a graph that are rehearsed: a spare should be ready soon."""
MAX_SECONDS = 5.0
"""Seconds for these nodes; those of a large model take one."""
MAX_BYTES = 2 << 30
"""The memory that these nodes may use; fake tensors have no data."""
MAX_CHARACTERS = 2000
"""The length of the arguments of a node that is rehearsed; a list of a hundred tensors is shorter."""


def import_modules() -> None:
    """Import torch, AOTAutograd and the rest that every trace needs. Raises ImportError without a usable torch."""
    _start_engine()
    for module in MODULES:
        importlib.import_module(module)
    _import_present(PARTITIONER_MODULES)
    from fx_lsp.tracer.program.extensions import tolerate_unloaded_operators

    tolerate_unloaded_operators()


def warm() -> None:
    """Import the modules of the compiler and trace once, after `import_modules`, so that forked processes inherit both.

    No backward is traced: fake tensors count as a device, for which autograd's engine may start threads.
    """
    _import_present(COMPILER_MODULES)
    _trace("Inference")


def _import_present(modules: Sequence[str]) -> None:
    for module in modules:
        with suppress(ImportError):
            importlib.import_module(module)


def _start_engine() -> None:
    """Start autograd's engine while no device is visible, so that it has no threads for devices.

    PyTorch with CUDA starts those at the first backward after the first fake tensor, and a process forked from one with
    such threads cannot differentiate.
    """
    torch = importlib.import_module("torch")
    if torch.version.cuda is not None and torch.cuda.device_count() == 0:
        torch.ones(1, requires_grad=True).sum().backward()


def rehearse(graph: bytes = b"") -> None:
    """Trace a small module, backward included, and run the operations of an encoded stage on fake tensors.

    A process that has done so owns the memory that tracing writes to, and knows what those operations return: the next
    trace of much the same code need not work it out. The stage comes from a process with code of a workspace.
    """
    _trace("Training")
    if graph:
        with memory_limit(MAX_BYTES), suppress(ProtocolError):
            _replay(decode_stage(graph))


def _replay(stage: Stage) -> None:
    """Run the ATen operations of a graph one by one; what is no ATen operation, and all that needs it, is left out.

    Nothing of the graph is evaluated: it names operations of PyTorch and values of `_value`. No operation computes.
    A graph that takes more than `MAX_SECONDS` ends this process.
    """
    import torch

    from fx_lsp.tracer.compat import FakeTensorMode
    from fx_lsp.tracer.run.tensors import make_tensor

    values: dict[str, Any] = {}
    mode = FakeTensorMode(allow_non_fake_inputs=True, allow_fallback_kernels=False)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, MAX_SECONDS)
    with mode, torch.no_grad():
        for node in stage.nodes[:MAX_NODES]:
            with suppress(Exception):
                spec = parse_spec(node.spec or "") if node.op == "placeholder" else None
                if spec is not None:
                    values[node.name] = make_tensor(spec)
                elif node.op == "call_function" and sum(map(len, node.args)) <= MAX_CHARACTERS:
                    call = ast.parse(f"f({', '.join(node.args)})", mode="eval").body
                    assert isinstance(call, ast.Call)
                    keywords = {keyword.arg or "": _value(keyword.value, values) for keyword in call.keywords}
                    arguments = [_value(argument, values) for argument in call.args]
                    values[node.name] = _operation(node.target)(*arguments, **keywords)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _operation(name: str) -> Callable[..., Any]:
    """Return an operation of PyTorch by its name in graphs. Raises an exception for any other name."""
    import torch

    if name == "operator.getitem":
        return operator.getitem
    namespace, operation, overload = name.split(".")
    function = getattr(getattr({"aten": torch.ops.aten, "prims": torch.ops.prims}[namespace], operation), overload)
    if not isinstance(function, torch._ops.OpOverload):
        raise TypeError(name)
    return function


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """Return a literal, one of the `values` by its name, `torch.float32`, `torch.device("cpu")`, `float("inf")`, or a
    list or tuple of these. Raises an exception for any other expression.
    """
    import torch

    match node:
        case ast.List(items):
            return [_value(item, values) for item in items]
        case ast.Tuple(items):
            return tuple(_value(item, values) for item in items)
        case ast.Name(name):
            return values[name]
        case ast.Attribute(ast.Name("torch"), name):
            constant = getattr(torch, name)
            if isinstance(constant, (torch.dtype, torch.layout, torch.memory_format)):
                return constant
            raise TypeError(name)
        case ast.Call(ast.Attribute(ast.Name("torch"), "device"), [ast.Constant(str(device))], []):
            return torch.device(device)
        case ast.Call(ast.Name("float"), [ast.Constant(str(number))], []):
            return float(number)
        case _:
            return ast.literal_eval(node)


def _trace(name: str) -> None:
    from fx_lsp.tracer.job import run

    comment = WrittenInputs("x=f32[4, 4]", "comment")
    run(TraceRequest(f"<{_NAME}>", name, "module", _SOURCE, _SOURCE, _NAME, "", (), (comment,)))
    sys.modules.pop(_NAME, None)
