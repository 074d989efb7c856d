"""From the graphs of a target to its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from fx_lsp.choices import Choices
from fx_lsp.codegen.file.functions import MOST_ARGUMENTS, Subject
from fx_lsp.codegen.file.module import Generated, file_of
from fx_lsp.codegen.graph.loop_batching import lift_sums
from fx_lsp.codegen.graph.random import seed_random
from fx_lsp.codegen.graph.reductions import split_reductions
from fx_lsp.codegen.graph.scatter import add_to_zeros, keep_sums
from fx_lsp.codegen.graph.sizes import sizes_of_inputs
from fx_lsp.codegen.graph.slices import join_slices, join_writes, sum_parts
from fx_lsp.codegen.graph.unsupported import keep_calls
from fx_lsp.codegen.graph.views import join_views, set_aside
from fx_lsp.codegen.ir.kernel import Naming
from fx_lsp.codegen.triton.dot import fuse_matmuls
from fx_lsp.codegen.triton.flash_attention import fuse_attention
from fx_lsp.codegen.triton.program import program


def prepared(graph: fx.Graph, choices: Choices) -> None:
    """Have kernels of ours stand, in a joint graph or one for inference, for what is not to be written op by op."""
    if choices.engine == "fx-lsp":
        sizes_of_inputs(graph)
        join_views(graph)
        seed_random(graph)
        keep_sums(graph)
        keep_calls(graph)
        join_writes(graph)
        join_slices(graph)
        if choices.fuse == "yes":
            sum_parts(graph)
            fuse_attention(graph, choices.precision)


def generate(
    subject: Subject,
    forward: fx.Graph,
    backward: fx.Graph | None,
    naming: Naming,
    hints: Mapping[str, int],
    choices: Choices,
) -> Generated:
    """The file for a function that has these graphs.

    Forward returns the results of the function and then what backward takes under the same names. Raises NotWritten
    where a part of the graphs cannot be written down.
    """
    if backward is None:
        prepared(forward, choices)
    for graph in (forward, backward):
        if graph is not None and choices.engine == "fx-lsp" and choices.deterministic == "no":
            add_to_zeros(graph)
        if graph is not None and choices.engine == "fx-lsp" and choices.fuse == "yes":
            lift_sums(graph)
            split_reductions(graph)
            fuse_matmuls(graph, choices)
    aside = set_aside(forward, subject.outputs, subject.tangents, backward is not None)
    title = f"{subject.stem}_forward_kernel" if backward is not None else f"{subject.stem}_kernel"
    changed = _overwritten(subject, forward) if backward is None and choices.engine == "fx-lsp" else {}
    first, second = program(forward, title, naming, hints, choices, changed), None
    if backward is not None:
        second = program(backward, f"{subject.stem}_backward_kernel", naming, hints, choices)
    return file_of(subject, first, second, naming.name, aside, choices.engine)


def _overwritten(subject: Subject, forward: fx.Graph) -> dict[fx.Node, fx.Node]:
    """The inputs that are to have new values, by those; none where an operator takes its tensors as a list."""
    inputs = [n for n in forward.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.Tensor)]
    if len(inputs) > MOST_ARGUMENTS:
        return {}
    by_name = dict(zip(subject.inputs, inputs, strict=True))
    output: Any = next(n for n in reversed(forward.nodes) if n.op == "output").args[0]
    pairs = zip(output, (by_name[name] for name, _ in subject.changed), strict=False)
    return {new: old for new, old in pairs if isinstance(new, fx.Node) and new.op == "call_function"}
