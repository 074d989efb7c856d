"""Build the trace of a failed target: the values and the torch calls that ran before, as written."""

from __future__ import annotations

import ast
import logging
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.fx.node import map_aggregate

from fx_lsp.model import Stage, StageInfo, Trace, TraceRequest
from fx_lsp.tracer.capture.graphs import Names, stage_of
from fx_lsp.tracer.run.branches import unreached
from fx_lsp.tracer.run.call import Call, FlatInput, flat_inputs
from fx_lsp.tracer.run.observation import Run, Stopped
from fx_lsp.tracer.run.torch_calls import FailedCall, TorchCall, tensors_among
from fx_lsp.tracer.source.provenance import KEY, Chain, Sources

STAGE = "torch"
TITLE = "as written, up to the failure"
FAILS = "fails here"

log = logging.getLogger(__name__)


def partial_trace(
    request: TraceRequest, sources: Sources, tree: ast.Module, stopped: Stopped
) -> tuple[Trace, Stage | None] | None:
    """Return the trace of a recorded run up to its failure, and the graph; None if no operation ran."""
    run = stopped.run
    if not run.recorded:
        return None
    stage = None
    try:
        stage = _executed_stage(run, stopped.call, sources, Names(sources, {request.file: tree}))
    except Exception:
        log.exception("the torch calls of %s make no graph", request.name)
    ended = sources.traceback_chain(run.error.__traceback__) if run.error is not None else ()
    trace = Trace(
        target=f"{request.file}::{request.name}",
        inputs=stopped.inputs,
        stages=() if stage is None else (StageInfo(stage.name, _ops(stage), len(stage.nodes), TITLE),),
        saved=(),
        values=tuple(run.values),
        outputs=(),
        seconds=0.0,
        torch=torch.__version__,
        unreached=unreached(tree, request.file, run.coverage, ended),
    )
    return trace, stage


def _ops(stage: Stage) -> int:
    return sum(node.computes and node.comment != FAILS for node in stage.nodes)


def _executed_stage(run: Run, call: Call, sources: Sources, names: Names) -> Stage:
    """Return the recorded torch calls of a run; one that raised is the last, and is marked.

    A run that came to its end has an output.
    """
    recorded = [item for item in run.recorded or () if item.result is None or any(True for _ in _tensors(item.result))]
    builder = _Builder(sources)
    inputs = list(_inputs(recorded, run.failed, call))
    placeholders = [builder.input(item) for item in inputs]
    for item in recorded:
        builder.add(item.func, item.args, item.kwargs, item.chain, item.result)
    failed = None
    if run.error is None:
        builder.graph.output(builder.with_nodes(run.result))
    elif run.failed is not None:
        failed = builder.add(run.failed.func, run.failed.args, run.failed.kwargs, run.failed.chain, None)
    names.name_inputs(zip(placeholders, inputs, strict=True))
    names.name_variables(n for n in builder.graph.nodes if n is not failed)
    stage = stage_of(STAGE, builder.graph, names)
    if failed is None:
        return stage
    return replace(stage, nodes=(*stage.nodes[:-1], replace(stage.nodes[-1], comment=FAILS)))


def _inputs(recorded: list[TorchCall], failed: FailedCall | None, call: Call) -> list[FlatInput]:
    """Return the tensors that torch calls took and none of them returned, in the order of the call's inputs."""
    used: dict[int, torch.Tensor] = {}
    results: set[int] = set()
    for item in (*recorded, *([failed] if failed is not None else [])):
        used |= {id(t): t for t in tensors_among(item.args, item.kwargs) if id(t) not in results and id(t) not in used}
        if isinstance(item, TorchCall):
            results.update(id(tensor) for tensor in _tensors(item.result))
    named = {id(item.tensor): item for item in flat_inputs(replace(call, touched=frozenset(used)))}
    others = (FlatInput("tensor", tensor, "input") for key, tensor in used.items() if key not in named)
    return [*(item for key, item in named.items() if key in used), *others]


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


class _Builder:
    """Add calls to a graph, with their tensors as the nodes that computed them."""

    def __init__(self, sources: Sources) -> None:
        self.graph = fx.Graph()
        self._sources = sources
        self._nodes: dict[int, fx.Node | tuple[fx.Node, tuple[int, ...]]] = {}
        self._last_parts: dict[fx.Node, fx.Node] = {}

    def input(self, item: FlatInput) -> fx.Node:
        """Add an input."""
        node = self.graph.placeholder(item.name)
        node.meta["val"] = item.tensor
        self._nodes[id(item.tensor)] = node
        return node

    def add(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], chain: Chain, result: Any
    ) -> fx.Node:
        """Add a call."""
        kind, target, args = _called(func, args)
        node = self.graph.create_node(kind, target, self.with_nodes(args), self.with_nodes(kwargs))
        node.meta |= {"val": result, "custom": {KEY: self._sources.number(chain)}}
        if isinstance(result, torch.Tensor):
            self._nodes[id(result)] = node
        else:
            self._note_parts(node, result, ())
        return node

    def with_nodes(self, value: Any) -> Any:
        """Return a value with nodes in place of its tensors."""
        return map_aggregate(value, lambda item: self._node_of(item) if isinstance(item, torch.Tensor) else item)

    def _node_of(self, tensor: torch.Tensor) -> Any:
        source = self._nodes.get(id(tensor), tensor)
        if not isinstance(source, tuple):
            return source
        whole, path = source
        node = whole
        for index in path:
            with self.graph.inserting_after(self._last_parts.get(whole, whole)):
                part = self.graph.call_function(operator.getitem, (node, index))
            part.meta |= {"val": node.meta["val"][index], "custom": whole.meta["custom"]}
            self._last_parts[whole] = node = part
        self._nodes[id(tensor)] = node
        return node

    def _note_parts(self, node: fx.Node, result: Any, path: tuple[int, ...]) -> None:
        if isinstance(result, torch.Tensor):
            self._nodes[id(result)] = node, path
        elif isinstance(result, (list, tuple)):
            for index, item in enumerate(result):
                self._note_parts(node, item, (*path, index))


def _called(func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, Any, tuple[Any, ...]]:
    """Return a torch call in the form of torch.fx: an operator, a method, an attribute or a function."""
    name = getattr(func, "__name__", "")
    owner: Any = getattr(func, "__self__", None)
    if name == "__get__":
        return "call_function", getattr, (args[0], owner.__name__)
    if name.startswith("__") and hasattr(operator, name):
        return "call_function", getattr(operator, name), args
    plain = f"__{name[3:]}" if name.startswith("__r") else ""
    if plain and hasattr(operator, plain) and len(args) == 2:
        return "call_function", getattr(operator, plain), args[::-1]
    is_method = getattr(torch.Tensor, name, None) is func or getattr(func, "__qualname__", "").startswith("TensorBase.")
    return ("call_method", name, args) if name and is_method else ("call_function", func, args)
