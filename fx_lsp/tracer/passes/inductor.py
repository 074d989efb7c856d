"""Observe `torch.compile` on a target: every pass of Inductor separately, up to its generated code."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias
from unittest import mock

import torch
from torch import fx, nn
from torch._inductor import compile_fx
from torch._inductor.graph import GraphLowering
from torch.fx.passes.graph_transform_observer import GraphTransformObserver

from fx_lsp.tracer.capture.graphs import is_tangent
from fx_lsp.tracer.capture.torch_graph import dynamo_inputs, link, named
from fx_lsp.tracer.compat import both_graphs, exact_positions, options_of, output_code, report_layouts, uncached
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.program.effects import forbid_effects
from fx_lsp.tracer.run.call import RUN_CODE, FlatInput, flat_function, flat_inputs
from fx_lsp.tracer.source.provenance import Annotate
from fx_lsp.tracer.stages.ledger import Heading, Lane, Ledger

if TYPE_CHECKING:
    from fx_lsp.tracer.stages.registry import TracedCall


OnLowered: TypeAlias = "Callable[[Lane, str, Any, Callable[[Any], Any]], None]"


class StopCompiling(BaseException):
    """Leaves the compiler once everything was recorded: nothing is compiled to machine code or run."""


@dataclass
class InductorWatch:
    """Record in `ledger` the compiler's steps on a target; with `code`, Inductor also generates its output code.

    `add_traced_stages` is called at the place of AOTAutograd's own graphs, and `on_lowered` with each lane, the prefix
    of its stages, its lowered graph, and a function that compiles and imports the code for that.
    """

    ledger: Ledger
    traced: TracedCall
    code: bool
    add_traced_stages: Callable[[], None]
    on_lowered: OnLowered | None = None
    inputs: list[FlatInput] = field(default_factory=list[FlatInput])
    lane: Lane | None = None
    lanes: dict[str, Lane] = field(default_factory=dict[str, Lane])
    prefix: str = ""
    depth: int = 0
    module: fx.GraphModule | None = None

    @contextmanager
    def patched(self) -> Generator[None, None, None]:
        """Observe the compiler inside."""
        with ExitStack() as stack:

            def patch(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
                if (original := getattr(owner, name, None)) is not None:
                    stack.enter_context(mock.patch.object(owner, name, make(original)))

            patch(compile_fx, "_recursive_pre_grad_passes", self._pre_grad)
            patch(compile_fx, "_recursive_joint_graph_passes", self._joint)
            patch(compile_fx, "_recursive_post_grad_passes", self._post_grad)
            patch(compile_fx, "min_cut_rematerialization_partition", self._partition)
            patch(GraphTransformObserver, "__enter__", self._enter)
            patch(GraphTransformObserver, "__exit__", self._exit)
            patch(compile_fx, "GraphLowering", self._lower)
            patch(GraphLowering, "compile_to_module", self._generate)
            stack.enter_context(uncached())
            stack.enter_context(both_graphs())
            yield

    def compile(self, graph: Any, examples: Sequence[Any]) -> None:
        """Pass a graph to Inductor. Its exception is a note after the stages so far."""
        try:
            with self.patched(), suppress(StopCompiling):
                compile_fx.compile_fx(graph, list(examples), inner_compile=self._inner)
        except Exception as error:
            self.ledger.text("stopped", "Inductor", note=f"Inductor stopped here: {sentence(error)}")

    def _inner(self, graph: fx.GraphModule, examples: Sequence[Any], **options: Any) -> Any:
        with suppress(StopCompiling):
            compile_fx.compile_fx_inner(graph, examples, **options)

        def never(*args: Any) -> Any:
            raise StopCompiling

        never._boxed_call = True  # type: ignore[attr-defined]
        return never

    def _group(self, original: Callable[..., Any], prepare: Callable[[fx.GraphModule], None], title: str) -> Any:
        """Wrap one of Inductor's groups of passes, including its work between the named ones."""

        def run(graph: fx.GraphModule, *args: Any, **options: Any) -> Any:
            self.depth += 1
            try:
                if self.depth > 1:
                    return original(graph, *args, **options)
                prepare(graph)
                self.module = graph
                result = original(graph, *args, **options)
                after = result if isinstance(result, fx.GraphModule) else graph
                self._between(after, f"{title}, changes outside of named passes")
                return result
            finally:
                self.depth -= 1

        return run

    def _pre_grad(self, original: Callable[..., Any]) -> Any:
        def prepare(graph: fx.GraphModule) -> None:
            self.prefix, self.lane = "pre_grad", self.lanes.get("torch")

        return self._group(original, prepare, "pre-grad passes")

    def _joint(self, original: Callable[..., Any]) -> Any:
        def prepare(graph: fx.GraphModule) -> None:
            self.add_traced_stages()
            names = self.traced.new_names()
            names.assign(graph.graph, self.inputs, self.traced.captured.outputs)
            title = f"AOTAutograd with Inductor's decompositions{options_of('inductor')}"
            self.prefix = "joint"
            self.lane = self.ledger.begin(Heading("decomposed", title), graph.graph, names, self.traced.stages[0].name)
            self.lanes["joint"] = self.lane

        return self._group(original, prepare, "joint graph passes")

    def _partition(self, original: Callable[..., Any]) -> Any:
        def run(joint: fx.GraphModule, *args: Any, **options: Any) -> Any:
            forward, backward = original(joint, *args, **options)
            if self.depth == 0 and (lane := self.lanes.get("joint")) is not None:
                for name, part in (("forward", forward), ("backward", backward)):
                    heading = Heading(f"{name}:partition", f"min-cut partition, {name}{options_of('partition')}")
                    self.lanes[name] = self.ledger.begin(heading, part.graph, lane.names.copy(), lane.stage)
            return forward, backward

        return run

    def _post_grad(self, original: Callable[..., Any]) -> Any:
        def prepare(graph: fx.GraphModule) -> None:
            backward = any(map(is_tangent, graph.graph.nodes))
            self.prefix = "backward" if backward else "forward"
            self.lane = self.lanes.get(self.prefix) or self.lanes.get("joint")
            if "forward" not in self.lanes:
                self.prefix = "inference"
            self._between(graph, "views become reshapes", "view_to_reshape")
            if backward and self.lane is not None:
                title = "its inputs, in the layout that Inductor's forward produces"
                self.ledger.lay_out(self.lane, Heading("backward:layouts", title), graph.graph)

        return self._group(original, prepare, "post-grad passes")

    def _between(self, graph: fx.GraphModule, title: str, name: str = "others") -> None:
        if self.lane is not None:
            self.ledger.settle(self.lane, Heading(f"{self.prefix}:{name}", title), graph.graph)

    def _enter(self, original: Callable[..., Any]) -> Any:
        def enter(observer: Any) -> Any:
            self.depth += 1
            if self.depth == 2 and self.lane is not None and observer.gm is self.module:
                self._between(observer.gm, "between passes")
            return original(observer)

        return enter

    def _exit(self, original: Callable[..., Any]) -> Any:
        def leave(observer: Any, kind: Any, error: Any, traceback: Any) -> Any:
            self.depth -= 1
            if self.depth == 1 and self.lane is not None and observer.gm is self.module and kind is None:
                group = observer.subsystem or f"{self.prefix} passes"
                heading = Heading(f"{self.prefix}:{observer.passname}", f"{group}: {observer.passname}")
                self.ledger.step(self.lane, heading, observer.gm.graph)
            return original(observer, kind, error, traceback)

        return leave

    def _lower(self, original: Callable[..., Any]) -> Any:
        def lower(*args: Any, **options: Any) -> Any:
            if self.code or self.on_lowered is not None or self.prefix == "forward":
                return original(*args, **options)
            raise StopCompiling

        return lower

    def _generate(self, original: Callable[..., Any]) -> Any:
        def generate(lowering: Any) -> Any:
            report_layouts(lowering)
            if self.on_lowered is not None and self.lane is not None:
                self.on_lowered(self.lane, self.prefix, lowering, original)
            if self.code:
                code, lane = output_code(lowering), self.lane
                self.ledger.text(f"{self.prefix}:code", "Inductor's output code", code, lane.stage if lane else "")
            raise StopCompiling

        return generate


def watch_dynamo(watch: InductorWatch) -> None:
    """Compile the target as `torch.compile(fullgraph=True)` does. Raises Dynamo's error at a graph break."""
    call, names = watch.traced.call, watch.traced.new_names()

    def backend(graph: fx.GraphModule, examples: Sequence[Any]) -> Any:
        watch.inputs = dynamo_inputs(graph.graph, examples, call)
        link(graph.graph, names.sources)
        heading = Heading("dynamo", "torch.compile: the graph that Dynamo captured")
        watch.lanes["torch"] = watch.ledger.begin(heading, graph.graph, named(graph.graph, watch.inputs, names))
        watch.compile(graph, examples)
        raise StopCompiling

    torch._dynamo.reset()
    with exact_positions(), suppress(StopCompiling):
        torch._dynamo.optimize(backend, nopython=True)(call.function)(*call.args, **call.kwargs)


def without_dynamo(watch: InductorWatch) -> None:
    """Compile the target from its Python code, which AOTAutograd traces."""
    traced = watch.traced
    watch.inputs = flat_inputs(traced.call)

    def modes() -> ExitStack:
        stack = ExitStack()
        stack.enter_context(forbid_effects())
        stack.enter_context(Annotate(traced.sources, RUN_CODE))
        return stack

    flat = flat_function(traced.call, modes, [])

    class Flat(nn.Module):
        def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return flat(*tensors)

    watch.compile(Flat(), [item.tensor for item in watch.inputs])
