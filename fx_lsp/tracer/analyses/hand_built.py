"""Show a graph that a user's function builds, or a name of the module holds: unchanged, linted and propagated; or after
a user's pass.
"""

from __future__ import annotations

import ast
import linecache
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.passes.fake_tensor_prop import FakeTensorProp

from fx_lsp import wire
from fx_lsp.messages.analyses import BROKEN_GRAPH, NODE_NOT_COMPUTED
from fx_lsp.messages.targets import NO_GRAPH_FOR_PASS, NOT_DEFINED, RETURNS_NO_GRAPH, SHOWN_AS_BUILT
from fx_lsp.model import InputSpec, Remark, Span, Trace, TraceReply, TraceRequest, read_work
from fx_lsp.specs import Comment, TensorSpec, parse_comment
from fx_lsp.tracer.analyses.node_origins import OwnNames, link_made, lint_problem, table, unmarked
from fx_lsp.tracer.analyses.torchscript import TORCHSCRIPT, add_torchscript
from fx_lsp.tracer.capture.graphs import Names, stage_of
from fx_lsp.tracer.capture.node_values import value_of
from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.failures.exceptions import failure_of, sentence
from fx_lsp.tracer.program.effects import EffectBlocked, forbid_effects
from fx_lsp.tracer.program.load import Loaded, find
from fx_lsp.tracer.run.tensors import make_tensor
from fx_lsp.tracer.source.provenance import Sources
from fx_lsp.tracer.stages.ledger import Heading, Ledger

GRAPH = "graph"
"""The stage of the graph itself."""
_ALONE = "it is a Graph without the module whose attributes it uses"


class GraphAndModule(NamedTuple):
    """Hold a graph, and the module with its attributes; None if the graph was created without one."""

    graph: fx.Graph
    module: fx.GraphModule | None


def graph_reply(
    request: TraceRequest, loaded: Loaded, sources: Sources, mode: FakeTensorMode, started: float
) -> TraceReply:
    """Return the graph that the target builds as stages: itself, a table, its code, TorchScript on request; for a pass,
    itself and the stages of the pass.

    An error while it is built is a Failure at the user's expression, a later one a remark.
    """
    options = read_work(request.work)
    if request.work not in ("", TORCHSCRIPT) and "pass" not in options:
        return TraceReply(SHOWN_AS_BUILT.failure(name=request.name))
    if options.get("on", GRAPH) != GRAPH:
        return TraceReply(NO_GRAPH_FOR_PASS.failure(graph=options["on"], name=request.name))
    try:
        target = find(loaded.module, request.name)
    except AttributeError:
        return TraceReply(NOT_DEFINED.failure(name=request.name))
    try:
        value = target if graph_of(target) is not None else _returned(target, mode)
    except (Exception, SystemExit, EffectBlocked) as error:
        return TraceReply(failure_of(error, sources, None, request.source.splitlines(), "error"))
    result = graph_of(value)
    if result is None:
        return TraceReply(RETURNS_NO_GRAPH.failure(name=request.name, returned=type(value).__name__))
    link_made(result.graph, sources)
    names = OwnNames(sources, {request.file: ast.parse(request.source, request.file)})
    ledger = Ledger("check" in options)
    if (problem := lint_problem(result.graph)) is not None:
        message, node = problem
        chain = names.chain(node) if node is not None else ()
        where = chain[0] if chain else None
        ledger.remarks.append(BROKEN_GRAPH.remark(where, error=message))
    inputs = ()
    if problem is None:
        inputs, remarks = _propagate(result, request, mode, names)
        ledger.remarks += remarks
    if request.passes:
        _add_pass(ledger, result, request, sources, mode)
    else:
        _add_stages(ledger, result, names, sources)
    if request.work == TORCHSCRIPT:
        _add_torchscript(ledger, result, names, problem is None)
    nodes = ledger.stages[0].nodes
    outputs = [n.spec or "" for n in nodes if n.name in nodes[-1].inputs]
    trace = Trace(
        target=f"{request.file}::{request.name}",
        inputs=inputs,
        stages=tuple(ledger.infos),
        saved=(),
        values=(),
        outputs=tuple(outputs),
        seconds=time.perf_counter() - started,
        torch=torch.__version__,
        remarks=tuple(ledger.remarks),
    )
    return TraceReply(trace, {s.name: wire.encode_stage(s) for s in ledger.stages})


def graph_of(value: Any) -> GraphAndModule | None:
    """Return the graph of a Graph, a GraphModule, an exported program, a Proxy or a Node; None for anything else."""
    if isinstance(value, fx.Proxy):
        value = value.node
    if isinstance(value, fx.Node):
        value = value.graph
    if isinstance(value, fx.Graph):
        owner = value.owning_module
        return GraphAndModule(value, owner if isinstance(owner, fx.GraphModule) else None)
    if not isinstance(value, nn.Module):
        value = getattr(value, "graph_module", None)
    return GraphAndModule(value.graph, value) if isinstance(value, fx.GraphModule) else None


def _returned(build: Any, mode: FakeTensorMode) -> Any:
    """Call the builder on fake tensors, or on real ones if it raises on these."""
    with forbid_effects():
        try:
            with mode:
                return build()
        except Exception:
            return build()


def _propagate(
    result: GraphAndModule, request: TraceRequest, mode: FakeTensorMode, names: OwnNames
) -> tuple[tuple[InputSpec, ...], list[Remark]]:
    """Set the values of the nodes, if those of all placeholders are known: from their own `meta`, or a
    comment's specs.
    """
    specs = _placeholder_specs(request)
    values: list[Any] = []
    inputs: list[InputSpec] = []
    for node in result.graph.nodes:
        if node.op != "placeholder":
            continue
        value = node.meta.get("val", node.meta.get("example_value"))
        spec = specs.get(str(node.target)) or specs.get(node.name)
        if spec is not None:
            with mode:
                value = make_tensor(spec)
            inputs.append(InputSpec(node.name, str(spec), "comment"))
        elif node.args and value is None:
            value = node.args[0]
        elif value is None:
            return tuple(inputs), []
        values.append(mode.from_tensor(value) if _is_real(value) else value)
    if not inputs and all("val" in n.meta for n in result.graph.nodes if n.op.startswith("call_")):
        return (), []
    module = _module_of(result)
    if module is None:
        return tuple(inputs), []
    propagation = _Propagation(module, _mode_of(values, mode))
    try:
        with torch.no_grad(), forbid_effects():
            propagation.propagate_dont_convert_inputs(*values)
    except (Exception, EffectBlocked) as error:
        at = propagation.at
        chain = names.chain(at) if at is not None else ()
        span, name = chain[0] if chain else None, "the graph" if at is None else at.name
        return tuple(inputs), [NODE_NOT_COMPUTED.remark(span, node=name, error=sentence(error))]
    return tuple(inputs), []


def _is_real(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)


def _placeholder_specs(request: TraceRequest) -> dict[str, TensorSpec]:
    """Return the specs of placeholders in comments and settings, by name."""
    specs: dict[str, TensorSpec] = {}
    for item in request.given:
        comment = parse_comment(item.text)
        for name, value in comment.args.items() if isinstance(comment, Comment) else ():
            if isinstance(value, TensorSpec) and not any(isinstance(size, str) for size in value.sizes):
                specs.setdefault(name, value)
    return specs


class _Propagation(FakeTensorProp):
    """Track the node that it is `at`. A module with real parameters runs on fake ones."""

    def __init__(self, module: fx.GraphModule, mode: FakeTensorMode) -> None:
        super().__init__(module, mode)
        self.at: fx.Node | None = None

    def run_node(self, n: fx.Node) -> Any:
        self.at = n
        result = super().run_node(n)
        if isinstance(result, torch.Tensor):
            n.meta.setdefault("val", result)
        return result


def _add_pass(
    ledger: Ledger, result: GraphAndModule, request: TraceRequest, sources: Sources, mode: FakeTensorMode
) -> None:
    """Run the requested pass on the graph, which nothing else uses, so the pass may change it."""
    from fx_lsp.tracer.passes.user_pass import Bench, run_on

    source, module = request.passes[0], _module_of(result)
    placeholders = [n for n in result.graph.nodes if n.op == "placeholder"]
    inputs = [n.args[0] if n.args and value_of(n) is None else value_of(n) for n in placeholders]
    unknown = [n.name for n, value in zip(placeholders, inputs, strict=True) if value is None]
    note = f"the value of {unknown[0]} is unknown, so graphs are not run to find their shapes" if unknown else ""
    lane = ledger.begin(Heading(GRAPH, _title(result), note), result.graph, Names(sources, {}))
    if module is None or lint_problem(result.graph) is not None:
        why = "a pass cannot run on a broken graph" if module is not None else f"{_ALONE}: a pass takes a GraphModule"
        ledger.text(f"pass:{source.found.name}", f"pass {source.found.name}", "", GRAPH, why)
        return
    values = None if unknown or ledger.remarks else inputs
    with unmarked():
        run_on(Bench(request, sources, _mode_of(inputs, mode), ledger, lane, module, values), source)


def _add_stages(ledger: Ledger, result: GraphAndModule, names: OwnNames, sources: Sources) -> None:
    stage = stage_of(GRAPH, result.graph, names)
    ledger.add(stage, _title(result))

    def source_line(span: Span) -> str:
        return linecache.getline(span.file, span.line).strip() if span.file == sources.file else ""

    ledger.text("table", "the graph as a table", table(result.graph, stage, source_line), GRAPH)
    try:
        with forbid_effects():
            code = result.module.code if result.module is not None else result.graph.python_code("self").src
    except (Exception, EffectBlocked) as error:
        ledger.text("code", "the generated code", "", GRAPH, f"torch generates no code for it: {sentence(error)}")
    else:
        ledger.text("code", "the generated code: GraphModule.code", code.strip() + "\n", GRAPH)


def _add_torchscript(ledger: Ledger, result: GraphAndModule, names: OwnNames, sound: bool) -> None:
    module, title = _module_of(result), "TorchScript: torch.jit.script"
    if not sound:
        ledger.text(TORCHSCRIPT, title, "", GRAPH, "torch.jit.script cannot script a broken graph")
    elif module is None:
        ledger.text(TORCHSCRIPT, title, "", GRAPH, f"{_ALONE}: only a GraphModule scripts")
    else:
        add_torchscript(ledger, module, names, GRAPH)


def _title(result: GraphAndModule) -> str:
    return f"as built: {'fx.Graph' if result.module is None else type(result.module).__name__}"


def _module_of(result: GraphAndModule) -> fx.GraphModule | None:
    """Return the module of a graph; a new one for a Graph alone, and None if that uses attributes of one."""
    if result.module is None and any(n.op in ("get_attr", "call_module") for n in result.graph.nodes):
        return None
    return result.module or fx.GraphModule(nn.Module(), result.graph)


def _mode_of(values: Sequence[Any], otherwise: FakeTensorMode) -> FakeTensorMode:
    """Return the mode of fake tensors among `values`."""
    return next((v.fake_mode for v in values if isinstance(v, FakeTensor)), otherwise)
