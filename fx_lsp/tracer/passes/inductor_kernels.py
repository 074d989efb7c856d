"""Schedule the kernels of Inductor for a GPU, also without one, and record why it does not fuse neighbours.

Inductor reads the device of tensors, and asks for the properties of the GPU. Up to its schedule it does not use the
GPU: here the tensors of a graph that it lowers are fake ones on a GPU, and the properties are those of a recent one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from unittest import mock

import torch
from torch import fx
from torch._dynamo.device_interface import get_interface_for_device
from torch._inductor import ir, scheduler
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from fx_lsp.messages.fusion import NO_REASON, WHY_NOT_FUSED
from fx_lsp.model import Node
from fx_lsp.tracer.capture.graphs import stage_of
from fx_lsp.tracer.compat import FakeTensor, FakeTensorMode, report_layouts
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.passes.inductor import InductorWatch, StopCompiling, watch_dynamo, without_dynamo
from fx_lsp.tracer.program.devices import left
from fx_lsp.tracer.program.gpu.torch_cuda import PROPERTIES, idle_gpu
from fx_lsp.tracer.stages.kernel_plan import KernelGap, KernelPlan, LaunchKind, PlannedKernel
from fx_lsp.tracer.stages.ledger import Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall

_GPU = torch.device("cuda", 0)
_CPU = torch.device("cpu")
_TITLES = {"cuda": "for a GPU", "cpu": "for the CPU"}


@dataclass
class InductorPlans:
    """Hold the kernels of each graph that Inductor compiles for a target, and notes on those that it does not."""

    plans: list[KernelPlan] = field(default_factory=list[KernelPlan])
    notes: list[str] = field(default_factory=list[str])


def inductor_plans(traced: TracedCall) -> InductorPlans:
    """Return the kernels of Inductor for a target on a GPU, or on the CPU if it cannot be scheduled for a GPU."""
    plans = _plans(traced, "cuda")
    if plans.plans:
        return plans
    others = _plans(traced, "cpu")
    return InductorPlans(others.plans, [*plans.notes, *others.notes]) if others.plans else plans


def _plans(traced: TracedCall, device: Literal["cuda", "cpu"]) -> InductorPlans:
    ledger, result = Ledger(), InductorPlans()
    watch = SchedulingWatch(ledger, traced, False, lambda: None, plans=result.plans, device=device)
    try:
        with left(traced.devices):
            watch_dynamo(watch)
    except Exception as error:
        result.notes.append(f"Dynamo cannot capture it as one graph, so AOTAutograd traces it: {sentence(error)}")
        without_dynamo(watch)
    result.notes += [info.note for info in ledger.infos if info.name == "stopped"]
    return result


def inductor_generates(node: fx.Node) -> bool:
    """Return True if Inductor computes an operation of ATen in kernels for a GPU, without a call of the operation."""
    from torch._inductor.graph import GraphLowering  # it loads the compiler

    leaves, spec = tree_flatten((node.args, node.kwargs))
    mode = FakeTensorMode()
    try:
        values = [_at_capture(leaf.meta["val"] if isinstance(leaf, fx.Node) else leaf, mode) for leaf in leaves]

        def call(*tensors: Any) -> Any:
            inputs = iter(tensors)
            operands = [next(inputs) if isinstance(value, FakeTensor) else value for value in values]
            args, options = tree_unflatten(operands, spec)
            assert callable(node.target)
            return node.target(*args, **options)

        tensors = [value for value in values if isinstance(value, FakeTensor)]
        with _gpu(), mode:
            module = make_fx(call, select_decomp_table())(*tensors)
            lowering: Any = GraphLowering(module, shape_env=ShapeEnv(), is_inference=True)
            with V.set_graph_handler(lowering), V.set_fake_mode(mode):
                lowering.run(*tensors)
    except Exception:  # the operation needs another number, or Inductor has no kernel for such operands
        return False
    return not any(isinstance(operation, ir.ExternKernel) for operation in lowering.operations)


def _at_capture(value: Any, mode: FakeTensorMode) -> Any:
    """Return an operand as Inductor gets it on a GPU, with the sizes of the capture."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return _moved_device(value)
    sizes, strides = ([_at_capture(size, mode) for size in each] for each in (value.shape, value.stride()))
    with mode:
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device=_GPU)


@dataclass(frozen=True)
class FusionRefusal:
    """Hold why Inductor does not fuse two nodes of its schedule, by the operations in these, in its own words."""

    first: frozenset[str]
    second: frozenset[str]
    words: str


@dataclass
class SchedulingWatch(InductorWatch):
    """Let Inductor schedule the kernels of each graph for a device, and add them to `plans`.

    `shown` are the nodes of the graph that it lowers, by their name.
    """

    plans: list[KernelPlan] = field(default_factory=list[KernelPlan])
    device: Literal["cuda", "cpu"] = "cuda"
    shown: Mapping[str, Node] = field(default_factory=dict[str, Node])

    def _lower(self, original: Callable[..., Any]) -> Any:
        def lower(module: fx.GraphModule, *args: Any, **options: Any) -> Any:
            nodes = stage_of("", module.graph, self.lane.names).nodes if self.lane is not None else ()
            self.shown = {n.name: node for n, node in zip(module.graph.nodes, nodes, strict=bool(nodes))}
            if self.device == "cpu":
                return original(module, *args, **options)
            _move_graph(module.graph)
            options["example_inputs"] = _moved(options.get("example_inputs"))
            lowering = original(module, *args, **options)
            run = lowering.run

            def run_on_gpu(*inputs: Any) -> Any:
                with _gpu():
                    return run(*_moved(inputs))

            lowering.run = run_on_gpu
            return lowering

        return lower

    def _generate(self, original: Callable[..., Any]) -> Any:
        def generate(lowering: Any) -> Any:
            report_layouts(lowering)
            with _gpu() if self.device == "cuda" else ExitStack(), _refusals() as refusals:
                lowering.init_wrapper_code()
                lowering._update_scheduler()
                planned = planned_kernels(lowering.scheduler.nodes, self.shown, refusals)
            self.plans.append(KernelPlan(f"Inductor {_TITLES[self.device]}, {self.prefix}", planned))
            raise StopCompiling

        return generate


def _move_graph(graph: fx.Graph) -> None:
    """Move the tensors of a graph from the CPU to the GPU."""
    for node in graph.nodes:
        if "val" in node.meta:
            node.meta["val"] = _moved(node.meta["val"])
        node.args = map_aggregate(node.args, _moved_device)
        node.kwargs = map_aggregate(node.kwargs, _moved_device)


def _moved_device(argument: Any) -> Any:
    return _GPU if argument == _CPU and isinstance(argument, torch.device) else argument


def _moved(values: Any) -> Any:
    return tree_map_only(FakeTensor, _moved_tensor, values)


def _moved_tensor(tensor: Any) -> Any:
    """Return a fake tensor on the GPU in place of one on the CPU."""
    if tensor.device.type != "cpu":
        return tensor
    shape = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
    return FakeTensor(tensor.fake_mode, shape, _GPU)


@contextmanager
def _gpu() -> Generator[None, None, None]:
    """Inside, Inductor finds a GPU."""
    if torch.cuda.is_available():
        yield
        return
    interface = get_interface_for_device("cuda")
    with ExitStack() as stack:
        stack.enter_context(idle_gpu())
        stack.enter_context(mock.patch.object(scheduler, "has_triton", lambda *args: True))
        for owner, name, answer in (
            (interface, "get_device_properties", PROPERTIES),
            (interface.Worker, "get_device_properties", PROPERTIES),
            (interface, "get_compute_capability", 10 * PROPERTIES.major + PROPERTIES.minor),
        ):
            stack.enter_context(mock.patch.object(owner, name, lambda *args, answer=answer: answer))
        yield


@contextmanager
def _refusals() -> Generator[list[FusionRefusal], None, None]:
    """Yield the list of what Inductor says inside on nodes that it does not fuse."""
    refusals: list[FusionRefusal] = []
    operations: dict[str, frozenset[str]] = {}
    create, call = scheduler.WhyNoFuse.__init__, scheduler.WhyNoFuse.__call__

    def __init__(self: Any, first: Any, second: Any) -> None:
        for node in (first, second):
            operations[node.get_name()] = frozenset(node.get_operation_names())
        create(self, first, second)

    def __call__(self: Any, reason: str, *args: Any) -> None:
        words = reason % args if args else reason
        refusals.append(FusionRefusal(operations[self.name1], operations[self.name2], words))
        call(self, reason, *args)

    with (
        mock.patch.object(scheduler.WhyNoFuse, "__init__", __init__),
        mock.patch.object(scheduler.WhyNoFuse, "__call__", __call__),
    ):
        yield refusals


def planned_kernels(
    nodes: Sequence[Any], shown: Mapping[str, Node], refusals: Sequence[FusionRefusal]
) -> tuple[PlannedKernel, ...]:
    """Return the kernels of a schedule in order."""
    launched = [node for node in nodes if not isinstance(node, scheduler.NopKernelSchedulerNode)]
    planned: list[PlannedKernel] = []
    for place, node in enumerate(launched):
        read = {dep.name for dep in node.read_writes.reads}
        earlier = [
            (number, other)
            for number, other in enumerate(launched[:place], start=1)
            if number == place or read & set(other.get_buffer_names())
        ]
        gaps = [_gap(number, other, node, shown, refusals) for number, other in earlier]
        planned.append(PlannedKernel(_kind(node), _operations(node, shown), tuple(gaps)))
    return tuple(planned)


def _kind(node: Any) -> LaunchKind:
    if isinstance(node, scheduler.ExternKernelSchedulerNode):
        return "call"
    return "template" if node.is_template() else "kernel"


def _operations(node: Any, shown: Mapping[str, Node]) -> tuple[Node, ...]:
    """Return the operations of the graph that a node of a schedule computes, in order."""
    buffers = [part.node for part in node.get_nodes() if part.node is not None]
    names = {origin.name for buffer in buffers for origin in buffer.get_origins()}
    return tuple(item for name, item in shown.items() if name in names and item.computes)


def _gap(
    number: int, first: Any, second: Any, shown: Mapping[str, Node], refusals: Sequence[FusionRefusal]
) -> KernelGap:
    """Return why two nodes of a schedule are not one: the last reason that Inductor reported for parts of both."""
    called = next((node for node in (second, first) if _kind(node) == "call"), None)
    operations = _operations(called, shown) if called is not None else ()
    if operations:
        return KernelGap(number, "call", WHY_NOT_FUSED["call"].format(first=operations[-1].name))
    own, others = (frozenset(node.get_operation_names()) for node in (first, second))
    words = [
        WHY_NOT_FUSED["inductor"].format(why=f"“{refusal.words}”")
        for refusal in refusals
        if (refusal.first <= own and refusal.second <= others) or (refusal.first <= others and refusal.second <= own)
    ]
    return KernelGap(number, "inductor", words[-1] if words else NO_REASON)
