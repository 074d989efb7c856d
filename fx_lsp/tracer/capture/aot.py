"""Capture AOTAutograd's graphs of a call: joint, forward and backward, or inference if nothing is differentiable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from fx_lsp.model import Remark, Stage
from fx_lsp.tracer.capture.autograd_functions import GradientError, checked_gradients
from fx_lsp.tracer.capture.checkpointing import tagged_checkpoints
from fx_lsp.tracer.capture.graphs import Names, stage_of
from fx_lsp.tracer.capture.untrained import Untrained, untrained_parameters
from fx_lsp.tracer.compat import (
    aot_function,
    min_cut_partition,
    preserve_node_meta,
    tolerant_tensorification,
    without_compilation,
)
from fx_lsp.tracer.failures.exceptions import sentence
from fx_lsp.tracer.program.gpu.tensors import name_devices
from fx_lsp.tracer.run.call import RUN_CODE, Call, FlatInput, flat_function, flat_inputs
from fx_lsp.tracer.run.context import entered
from fx_lsp.tracer.run.operations.recurrent import NOTE as RECURRENT_NOTE
from fx_lsp.tracer.run.operations.recurrent import OneOperation
from fx_lsp.tracer.source.provenance import Annotate, Sources, annotated_backwards


@dataclass
class Captured:
    """Hold the graphs of one call. `saved` are the forward nodes whose values backward reads.

    `forward` and `backward` are None for an inference graph, `inference` is None otherwise. It is `refused` if PyTorch
    cannot differentiate the call. `untrained` are parameters that the joint graph has no gradient for.
    """

    inputs: list[FlatInput]
    outputs: list[str] = field(default_factory=list)
    names: Names | None = None
    joint: Stage | None = None
    forward: torch.fx.GraphModule | None = None
    backward: torch.fx.GraphModule | None = None
    inference: torch.fx.GraphModule | None = None
    saved: list[torch.fx.Node] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    refused: bool = False
    remarks: tuple[Remark, ...] = ()
    untrained: list[Untrained] = field(default_factory=list[Untrained])

    @property
    def computing(self) -> torch.fx.GraphModule | None:
        """Return the graph that computes the results: forward, or that for inference; None before the capture."""
        return self.inference or self.forward

    def refuse(self, error: Exception) -> None:
        """Record why there is no backward graph."""
        self.refused = True
        if isinstance(error, GradientError):
            self.remarks = (error.remark,)
        self.notes = (f"it has no backward graph: {sentence(error)}", *self.notes)


@dataclass(frozen=True)
class CaptureOptions:
    """Describe how a call is captured.

    With `symbolic`, sizes of its tensors are symbols, or may become some. `decompositions` replace operations by
    others, as for `aot_function`; with `unrolled`, recurrent layers appear as PyTorch runs them here. `others` are
    further options of `aot_function`.
    """

    differentiate: bool = True
    symbolic: bool = False
    decompositions: Mapping[Any, Callable[..., Any]] | None = None
    partition_fn: Callable[..., tuple[torch.fx.GraphModule, torch.fx.GraphModule]] = min_cut_partition
    unrolled: bool = False
    others: Mapping[str, Any] | None = None


class _GraphsCaptured(BaseException):
    """Leaves AOTAutograd as soon as the graphs exist: nothing needs to be compiled or run."""


def capture_what_is_possible(
    call: Call, sources: Sources, new_names: Callable[[], Names], symbolic: bool = False
) -> Captured:
    """Capture the graphs of `call`; only the inference graph, with a note, for code that PyTorch cannot differentiate.

    `symbolic` is True if sizes of its tensors are symbols, or may become some. Raises the errors of the target and of
    AOTAutograd.
    """
    try:
        return capture(call, sources, new_names(), CaptureOptions(symbolic=symbolic))
    except RuntimeError as error:
        with suppress(Exception):
            captured = capture(call, sources, new_names(), CaptureOptions(differentiate=False, symbolic=symbolic))
            captured.refuse(error)
            return captured
        raise


def capture(call: Call, sources: Sources, names: Names, how: CaptureOptions) -> Captured:
    """Trace `call` on its fake tensors with AOTAutograd and a partitioner. Raises the errors of the target and of
    AOTAutograd.
    """
    captured = Captured(flat_inputs(call), names=names)
    recurrent = OneOperation()

    def modes() -> ExitStack:
        stack = ExitStack()
        if not how.unrolled:
            stack.enter_context(recurrent)
        stack.enter_context(Annotate(sources, RUN_CODE))
        return stack

    flat = flat_function(call, modes, captured.outputs)

    def partition(
        joint: torch.fx.GraphModule, inputs: Any, **options: Any
    ) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
        name_devices(joint.graph)
        names.assign(joint.graph, captured.inputs, captured.outputs)
        captured.joint = stage_of("joint", joint.graph, names)  # now, because the partitioner rewrites the graph
        captured.untrained = untrained_parameters(joint.graph, names, options["num_fwd_outputs"])
        if "static_lifetime_input_indices" in options:
            options["static_lifetime_input_indices"] = _static_inputs(joint.graph, names)
        forward, backward = how.partition_fn(joint, inputs, **options)
        captured.forward, captured.backward = forward, backward
        captured.saved = saved_nodes(forward, options["num_fwd_outputs"])
        return forward, backward

    def compile_(gm: torch.fx.GraphModule, example_inputs: Any) -> Any:
        if captured.forward is None:
            name_devices(gm.graph)
            names.assign(gm.graph, captured.inputs, captured.outputs)
            captured.inference = gm
        raise _GraphsCaptured

    compiled = aot_function(
        flat,
        fw_compiler=compile_,
        bw_compiler=compile_,
        partition_fn=partition,
        decompositions=None if how.decompositions is None else dict(how.decompositions),
        dynamic=how.symbolic,
        **dict[str, Any]({"keep_inference_input_mutations": True} | dict(how.others or {})),
    )
    with (
        without_compilation(),
        tolerant_tensorification(),
        preserve_node_meta(),
        tagged_checkpoints(),
        annotated_backwards(sources),
        checked_gradients(sources),
        suppress(_GraphsCaptured),
        entered(call.context),
    ):
        compiled(*(i.tensor if how.differentiate else i.tensor.detach() for i in captured.inputs))
    captured.notes = (RECURRENT_NOTE,) if recurrent.used else ()
    return captured


def saved_nodes(forward: torch.fx.GraphModule, num_outputs: int) -> list[torch.fx.Node]:
    """Return the values that a forward graph returns after its `num_outputs` results: backward reads them."""
    output = next(n for n in reversed(forward.graph.nodes) if n.op == "output")
    values = output.args[0]
    assert isinstance(values, (list, tuple))
    return [v for v in values[num_outputs:] if isinstance(v, torch.fx.Node)]


def _static_inputs(joint: torch.fx.Graph, names: Names) -> list[int]:
    """Return the indices of the inputs of a joint graph that are parameters or buffers: they outlive it, so saving is
    free.
    """
    items = [names.inputs.get(n.name) for n in joint.nodes if n.op == "placeholder"]
    return [i for i, item in enumerate(items) if item is not None and item.kind in ("parameter", "buffer")]


def stages(captured: Captured) -> list[Stage]:
    """Return the stages of a capture, in pipeline order."""
    names = captured.names
    assert names is not None
    if captured.inference is not None:
        return [stage_of("inference", captured.inference.graph, names)]
    assert captured.joint is not None and captured.forward is not None and captured.backward is not None
    recomputed = {n.name for n in captured.forward.graph.nodes if n.op == "call_function"}
    return [
        captured.joint,
        stage_of("forward", captured.forward.graph, names),
        stage_of("backward", captured.backward.graph, names, forward_ops=recomputed),
    ]
