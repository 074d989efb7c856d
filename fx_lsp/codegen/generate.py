"""From the graphs of a target to its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

from fx_lsp.choices import Choices
from fx_lsp.codegen.file.functions import MAX_ARGUMENTS, FileSpec
from fx_lsp.codegen.file.module import GeneratedFile, assemble_file
from fx_lsp.codegen.graph.loop_batching import batch_step_sums
from fx_lsp.codegen.graph.random import seed_random
from fx_lsp.codegen.graph.reductions import split_reductions
from fx_lsp.codegen.graph.scatter import add_to_zeros, save_scatter_sums
from fx_lsp.codegen.graph.sizes import derive_sizes_from_inputs
from fx_lsp.codegen.graph.slices import join_slices, join_writes, sum_stacked_parts
from fx_lsp.codegen.graph.unsupported import save_library_results
from fx_lsp.codegen.graph.views import detach_view_results, merge_views
from fx_lsp.codegen.ir.kernel import Naming
from fx_lsp.codegen.triton.dot import fuse_matmuls
from fx_lsp.codegen.triton.flash_attention import fuse_attention
from fx_lsp.codegen.triton.program import build_program


def prepare(graph: fx.Graph, choices: Choices) -> None:
    """Have template kernels stand, in a joint graph or one for inference, for what is not to be written op by op."""
    if choices.engine == "fx-lsp":
        derive_sizes_from_inputs(graph)
        merge_views(graph)
        seed_random(graph)
        save_scatter_sums(graph)
        save_library_results(graph)
        join_writes(graph)
        join_slices(graph)
        if choices.fuse == "yes":
            sum_stacked_parts(graph)
            fuse_attention(graph, choices.precision)


def generate(
    subject: FileSpec,
    forward: fx.Graph,
    backward: fx.Graph | None,
    naming: Naming,
    hints: Mapping[str, int],
    choices: Choices,
) -> GeneratedFile:
    """Return the file for a function that has these graphs.

    Forward returns the results of the function and then what backward takes under the same names. Raises NotWritten
    where a part of the graphs cannot be written down.
    """
    if backward is None:
        prepare(forward, choices)
    for graph in (forward, backward):
        if graph is not None and choices.engine == "fx-lsp" and choices.deterministic == "no":
            add_to_zeros(graph)
        if graph is not None and choices.engine == "fx-lsp" and choices.fuse == "yes":
            batch_step_sums(graph)
            split_reductions(graph)
            fuse_matmuls(graph, choices)
    view_results = detach_view_results(forward, subject.outputs, subject.tangents, backward is not None)
    title = f"{subject.stem}_forward_kernel" if backward is not None else f"{subject.stem}_kernel"
    changed = _inputs_to_overwrite(subject, forward) if backward is None and choices.engine == "fx-lsp" else {}
    first, second = build_program(forward, title, naming, hints, choices, changed), None
    if backward is not None:
        second = build_program(backward, f"{subject.stem}_backward_kernel", naming, hints, choices)
    return assemble_file(subject, first, second, naming.name, view_results, choices.engine)


def _inputs_to_overwrite(subject: FileSpec, forward: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Return the inputs that are to have new values, by those; none where an operator takes its tensors as a list."""
    inputs = [n for n in forward.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.Tensor)]
    if len(inputs) > MAX_ARGUMENTS:
        return {}
    by_name = dict(zip(subject.inputs, inputs, strict=True))
    output: Any = next(n for n in reversed(forward.nodes) if n.op == "output").args[0]
    pairs = zip(output, (by_name[name] for name, _ in subject.changed), strict=False)
    return {new: old for new, old in pairs if isinstance(new, fx.Node) and new.op == "call_function"}
