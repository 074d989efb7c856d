"""The library: AOTAutograd's graphs of a callable, for scripts and notebooks. Importing this module imports torch."""

from __future__ import annotations

import html
import linecache
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from fx_lsp.features.documents.document import render_stage
from fx_lsp.features.wording.traces import default_stage, summarize
from fx_lsp.model import InputSpec, Saved, Span, Stage, Trace
from fx_lsp.tracer.library import generate
from fx_lsp.tracer.library.fake_call import Options

Decompositions: TypeAlias = "Mapping[Any, Callable[..., Any]] | Literal['core']"
"""Functions to trace in place of operations (`torch.ops.aten.silu.default`, or `torch.ops.aten.silu` for all its
overloads), or "core" for the decompositions that keep core ATen.
"""


def generate_inference_graph(
    fn: Callable[..., Any],
    example_inputs: Sequence[Any],
    *,
    decompositions: Decompositions | None = None,
    static_argnums: int | Sequence[int] = (),
    dynamic: bool = False,
) -> torch.fx.Graph:
    """Return the ATen graph that `fn(*example_inputs)` runs without autograd.

    `fn` is a function, a method or an `nn.Module`; it runs on fake tensors only. `example_inputs` are real or fake
    tensors, lists, tuples and dicts of them, or any other values, which become constants. The inputs are not modified.

    The graph takes the module's parameters, its buffers, and then the tensors among the inputs. It returns a tuple of
    the tensors among the results, and writes into the inputs that `fn` writes into. A placeholder is named after its
    input; `meta["input"]` is that name in the source (`fc.weight`) and `meta["kind"]` is "parameter", "buffer" or
    "input". `meta["spans"]` of a node lists the expressions that it came from. Other tensors that `fn` reads are
    constants without a gradient: attributes of `graph.owning_module`. Run the graph as
    `torch.fx.GraphModule(graph.owning_module, graph)`.

    `decompositions` replace operations. Inputs in `static_argnums` are constants even if they are tensors. With
    `dynamic`, sizes of inputs are symbols, so that the graph is valid for other sizes than those of the examples.

    Raises ValueError if no graph can be captured, or if `fn` returns anything but a tensor, list or tuple. Errors that
    `fn` raises propagate.
    """
    options = Options(None, decompositions, _numbers(static_argnums), dynamic)
    return generate.inference(fn, example_inputs, options)


def generate_forward_and_backward_graph(
    fn: Callable[..., Any],
    example_inputs: Sequence[Any],
    requires_grad: Sequence[bool] | None = None,
    *,
    decompositions: Decompositions | None = None,
    static_argnums: int | Sequence[int] = (),
    dynamic: bool = False,
    partition_fn: Callable[..., Any] | None = None,
) -> tuple[torch.fx.Graph, torch.fx.Graph]:
    """Return the ATen graphs that `fn(*example_inputs)` and its backward pass run, split by the min-cut partitioner.

    Inputs, constants and names are as in `generate_inference_graph`. `requires_grad` has a bool for each example input,
    which applies to all dense floating tensors in it. Without it, every floating input requires a gradient. The inputs'
    own `requires_grad` is ignored; that of parameters counts.

    Forward returns the new value of each input that requires a gradient and that `fn` writes into (it writes into the
    others itself), the tensors among the results, and the values saved for backward. Backward takes the saved values in
    that order, and a gradient for each of the other outputs that is differentiable; it returns a gradient or None for
    each input of forward. Its placeholders have the kind "saved" or "tangent". Neither graph has a `detach`.
    `partition_fn` is another partitioner, such as `functorch.compile.default_partition`.

    Also raises ValueError if `requires_grad` differs in length from `example_inputs`, and if nothing is differentiable.
    """
    options = Options(requires_grad, decompositions, _numbers(static_argnums), dynamic, partition_fn)
    return generate.forward_and_backward(fn, example_inputs, options)


def trace(
    fn: Callable[..., Any],
    *inputs: Any,
    requires_grad: Sequence[bool] | None = None,
    decompositions: Decompositions | None = None,
    static_argnums: int | Sequence[int] = (),
    dynamic: bool = False,
    partition_fn: Callable[..., Any] | None = None,
) -> Traced:
    """Return the trace of `fn(*inputs)` that an editor shows: graphs, saved values, and the shape of every expression.

    The options are those of `generate_forward_and_backward_graph`. As in an editor, parameters and other tensors that
    `fn` reads are inputs of the graphs, and a recurrent layer is one operation. If nothing is differentiable, there is
    an inference graph.
    """
    options = Options(requires_grad, decompositions, _numbers(static_argnums), dynamic, partition_fn)
    return Traced(*generate.traced(fn, inputs, options))


@dataclass(frozen=True, repr=False)
class Traced:
    """Hold a traced call: the model, and its stages with all nodes. A notebook shows the graphs."""

    trace: Trace
    stages: tuple[Stage, ...]

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        """Return the arguments of the traced call."""
        return self.trace.inputs

    @property
    def saved(self) -> tuple[Saved, ...]:
        """Return the values that forward saves for backward."""
        return self.trace.saved

    def stage(self, name: str | None = None) -> Stage:
        """Return the stage `name` ("forward", "backward", "joint" or "inference"); without it, forward or inference.

        Raises ValueError if the trace has no such stage.
        """
        wanted = name or default_stage(self.trace)
        stage_of_name = next((stage for stage in self.stages if stage.name == wanted), None)
        if stage_of_name is None:
            raise ValueError(
                f"there is no {wanted} graph; the graphs are {', '.join(stage.name for stage in self.stages)}"
            )
        return stage_of_name

    def text(self, stage: str | None = None, full: bool = False) -> str:
        """Return a stage as readable Python. Repeated iterations are folded, unless `full`."""
        return render_stage(self.trace, self.stage(stage), _source_line, full).text

    def show(self, stage: str | None = None, full: bool = False) -> None:
        """Print a stage."""
        print(self.text(stage, full), end="")

    def __repr__(self) -> str:
        name = self.trace.target.rpartition("::")[2]
        return f"<Traced {name}: {summarize(self.trace)}>"

    def _repr_markdown_(self) -> str:
        return "\n".join(f"**{stage.name}**\n\n```python\n{self.text(stage.name)}```\n" for stage in self.stages)

    def _repr_html_(self) -> str:
        first = self.stage().name
        parts = [
            f"<details{' open' if stage.name == first else ''}><summary>{html.escape(stage.name)}</summary>"
            f"<pre>{html.escape(self.text(stage.name))}</pre></details>"
            for stage in self.stages
        ]
        return f"<div>{html.escape(repr(self))}{''.join(parts)}</div>"


def _numbers(numbers: int | Sequence[int]) -> Sequence[int]:
    return (numbers,) if isinstance(numbers, int) else numbers


def _source_line(span: Span) -> str | None:
    return linecache.getline(span.file, span.line) or None
