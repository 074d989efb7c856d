"""Convert a graph to TorchScript, if `torch.jit.script` accepts it."""

from __future__ import annotations

import copy
import importlib
import linecache
import re
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor

from fx_lsp.messages.analyses import NOT_SCRIPTED
from fx_lsp.model import Span
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.capture.torch_graph import named, symbolic_graph
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.pytorch_texts import ASSIGNED_IN_TORCHSCRIPT, HERE_IN_TORCHSCRIPT, PLACE_IN_TORCHSCRIPT
from fx_lsp.tracer.stages.ledger import Heading, Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

TORCHSCRIPT = "torchscript"
"""The stage, and the work that produces it."""
_TITLE = "TorchScript: torch.jit.script"


def torchscript(traced: TracedCall) -> Ledger:
    """Return the graph of the target by `torch.fx.symbolic_trace`, and its TorchScript."""
    ledger, names = Ledger(), traced.new_names()
    try:
        with forbid_effects():
            module = symbolic_graph(traced.call, traced.mode, traced.sources)
    except (Exception, EffectBlocked) as error:
        note = f"torch.fx.symbolic_trace, which TorchScript is made from, cannot trace it: {sentence(error)}"
        ledger.text(TORCHSCRIPT, _TITLE, note=note)
        return ledger
    heading = Heading("torch", "as written: torch.fx.symbolic_trace")
    ledger.begin(heading, module.graph, named(module.graph, (), names))
    add_torchscript(ledger, module, names, "torch")
    return ledger


def add_torchscript(ledger: Ledger, module: fx.GraphModule, names: Names, before: str) -> None:
    """Add the TorchScript of a graph module, or the reason for its failure, with a remark at the rejected
    expression.
    """
    try:
        with forbid_effects():
            scripted = _script(module)
        code, graph = str(scripted.code), str(scripted.graph)
    except (Exception, EffectBlocked) as error:
        reason, places = _reason(error), list(HERE_IN_TORCHSCRIPT.finditer(str(error)))
        at = f" (at `{places[0]['line'].strip()}`)" if places else ""
        ledger.text(TORCHSCRIPT, _TITLE, "", before, f"torch.jit.script cannot script it: {reason}{at}")
        span = next((span for place in places if (span := _span(place, module.graph, names)) is not None), None)
        if span is not None:
            ledger.remarks.append(NOT_SCRIPTED.remark(span, reason=reason))
        return
    shown = "".join(f"# {line}\n" for line in PLACE_IN_TORCHSCRIPT.sub("", graph).rstrip().splitlines())
    ledger.text(TORCHSCRIPT, _TITLE, f"{code.rstrip()}\n\n\n{shown}", before)


def _script(module: fx.GraphModule) -> Any:
    root = copy.copy(module)
    if any(isinstance(t, FakeTensor) for t in (*module.parameters(), *module.buffers())):
        root = copy.deepcopy(module)
        _without_values(root)
    graph = copy.deepcopy(module.graph)
    # Python finds no source for a name that ends in a bracket, such as that of a traced lambda.
    graph._co_fields = {}
    for node in graph.find_nodes(op="output"):
        node.type = None  # it is inferred; a type that the generated code does not import would fail
    return _jit().script(fx.GraphModule(root, graph, type(module).__name__.strip("<>") or "GraphModule"))


def _without_values(module: nn.Module) -> None:
    """Replace fake tensors by tensors without values, because TorchScript would keep a reference to them."""
    for part in module.modules():
        stores: list[dict[str, Any]] = [part._parameters, part._buffers]
        for store in stores:
            for name, tensor in store.items():
                if isinstance(tensor, FakeTensor):
                    bare = torch.empty(list(tensor.shape), dtype=tensor.dtype, device="meta")
                    store[name] = nn.Parameter(bare, tensor.requires_grad) if store is part._parameters else bare


def _jit() -> Any:
    """Return `torch.jit` with TorchScript enabled. A tracer starts with it disabled, and torch then defines other
    classes.

    It stays enabled: the process ends with the answer.
    """
    state, script = importlib.import_module("torch.jit._state"), importlib.import_module("torch.jit._script")
    if not state._enabled.enabled:
        state.enable()
        off = dict(vars(script))
        on = vars(importlib.reload(script))
        for name, module in list(sys.modules.items()):
            if name == "torch.jit" or name.startswith("torch.jit."):
                replaced = {k: on[k] for k, v in vars(module).items() if k in off and v is off[k] and k in on}
                vars(module).update(replaced)
    return script


def _reason(error: BaseException) -> str:
    """Return the message of `torch.jit.script` in one line."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    end = next((i for i, line in enumerate(said) if line.startswith('File "') or line == ":"), len(said))
    return " ".join(said[: max(end, 1)][:3]).rstrip(":. ") or sentence(error)


def _span(place: re.Match[str], graph: fx.Graph, names: Names) -> Span | None:
    """Return the user's line, or the expression that created the node of a line of the generated code; else None."""
    file, number = place["file"], int(place["number"])
    if names.sources.rank(file) < 2:
        line = linecache.getline(file, number).rstrip()
        return Span(file, number, len(line) - len(line.lstrip()), number, len(line.encode()))
    assigned = ASSIGNED_IN_TORCHSCRIPT.match(place["line"])
    node = next((n for n in graph.nodes if assigned and n.name == assigned[1]), None)
    chain = names.chain(node) if node is not None else ()
    return chain[0] if chain else None
