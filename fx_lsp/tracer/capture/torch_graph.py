"""Build the graph of a target as written: the torch calls in the user's code, before autograd and decompositions."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from fx_lsp.model import Span
from fx_lsp.tracer.capture.graphs import Names
from fx_lsp.tracer.compat import FakeTensorMode, placeholder_source
from fx_lsp.tracer.pytorch_texts import ENTRY_OF_STACK, PART_OF_MODULE
from fx_lsp.tracer.run.call import Call, FlatInput, flat_inputs, substitute
from fx_lsp.tracer.source.names import identifier
from fx_lsp.tracer.source.provenance import KEY, Chain, Sources


def symbolic_graph(call: Call, mode: FakeTensorMode, sources: Sources) -> fx.GraphModule:
    """Run `torch.fx.symbolic_trace` on a target, and set fake values of its nodes. Raises the errors of both.

    Each tensor among the arguments is an input of the graph; other arguments are constants.
    """
    function = call.function
    owner = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
    tracer = _Tracer(call, sources)
    graph = tracer.trace(owner if isinstance(owner, nn.Module) else function)
    module = fx.GraphModule(tracer.root, graph)
    FakeTensorProp(module, mode).propagate_dont_convert_inputs(*(tensor for _, tensor in call.arguments()))
    return module


class _Tracer(fx.Tracer):
    """Mark nodes with the expressions they came from. Modules of `torch.nn` stay `call_module` nodes."""

    def __init__(self, call: Call, sources: Sources) -> None:
        super().__init__()
        self._call = call
        self._sources = sources

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        proxies = [self.create_proxy("placeholder", identifier(name), (), {}) for name, _ in self._call.arguments()]
        function: Any = self._call.function

        def run(*tensors: Any) -> Any:
            supply = iter(tensors)
            args = [substitute(a, supply) for a in self._call.args]
            kwargs = {name: substitute(a, supply) for name, a in self._call.kwargs.items()}
            return (function.forward if isinstance(function, nn.Module) else function)(*args, **kwargs)

        return run, proxies

    def create_node(self, kind: str, *args: Any, **kwargs: Any) -> fx.Node:
        node = super().create_node(kind, *args, **kwargs)
        if kind.startswith("call_"):
            chain = self._sources.chain(sys._getframe(1), symbolic_graph.__code__)
            node.meta["custom"] = {KEY: self._sources.number(chain)}
        return node


def link(graph: fx.Graph, sources: Sources) -> None:
    """Mark the calls of a graph with stack traces with the expressions they came from."""
    for node in graph.nodes:
        if node.op.startswith("call_") and node.stack_trace:
            custom = node.meta.setdefault("custom", {})
            if KEY not in custom:
                custom[KEY] = sources.number(chain_of(node.stack_trace, sources))


def chain_of(stack_trace: str, sources: Sources) -> Chain:
    """Return the user's expressions in a printed stack, innermost first; whole lines without column marks."""
    own: list[Span] = []
    library: list[Span] = []
    for entry in ENTRY_OF_STACK.finditer(stack_trace):
        file, line = entry["file"], int(entry["line"])
        rank = sources.rank(file)
        if rank < 2:
            (own if rank == 0 else library).append(_span(file, line, entry["rest"].splitlines()))
    return tuple(reversed(own or library))


def _span(file: str, line: int, rest: list[str]) -> Span:
    text = linecache.getline(file, line).rstrip("\n")
    shown, marks = (*rest, "", "")[:2]
    if marks.strip("~^ ") == "" and marks.strip() and shown.strip() == text.strip():
        shift = len(text) - len(text.lstrip()) - (len(shown) - len(shown.lstrip()))
        start, end = len(marks) - len(marks.lstrip()) + shift, len(marks.rstrip()) + shift
        return Span(file, line, len(text[:start].encode()), line, len(text[:end].encode()))
    return Span(file, line, 0, line, 0)


def dynamo_inputs(graph: fx.Graph, examples: Sequence[Any], call: Call) -> list[FlatInput]:
    """Return the call's inputs of the placeholders of Dynamo's graph, with the user's names."""
    call_inputs = {id(item.tensor): item for item in flat_inputs(call)}
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    inputs: list[FlatInput] = []
    for node, example in zip(placeholders, examples, strict=True):
        item = call_inputs.get(id(example))
        if item is None:
            value = example if isinstance(example, torch.Tensor) else torch.empty(0, device="meta")
            source = placeholder_source(node)
            kind = "parameter" if "._parameters" in source else "buffer" if "._buffers" in source else "input"
            item = FlatInput(_path(source) or node.name, value, kind)
        inputs.append(item)
    return inputs


def _path(source: str) -> str:
    """Return `fc.weight` for `L['self']._modules['fc']._parameters['weight']`."""
    names = [a or b for a, b in PART_OF_MODULE.findall(source)]
    return ".".join(names[1:] if names[:1] == ["self"] and len(names) > 1 else names)


def named(graph: fx.Graph, inputs: Sequence[FlatInput], names: Names) -> Names:
    """Name the nodes of `graph` in `names` by the user's names, and return `names`."""
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    names.name_inputs(zip(placeholders, inputs, strict=False))
    names.name_variables(graph.nodes)
    return names
