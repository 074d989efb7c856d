"""Generate the file of a target from its graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.file.functions import MAX_ARGUMENTS, FileFunctions, FileSpec
from fx_lsp.codegen.file.module import GeneratedFile, assemble_file
from fx_lsp.codegen.ir.kernel import Naming
from fx_lsp.codegen.pipeline import Graphs, finish
from fx_lsp.codegen.triton.program import ProgramSpec, build_program


def generate(subject: FileSpec, graphs: Graphs, naming: Naming, hints: Mapping[str, int]) -> GeneratedFile:
    """Return the file of a function from its graphs: those that AOTAutograd partitioned, or one for inference.

    Raises CannotWrite if a part of the graphs cannot be written as code.
    """
    finish(graphs, subject.outputs, subject.tangents)
    forward, backward, choices = graphs.forward, graphs.backward, graphs.choices
    assert forward is not None
    title = f"{subject.stem}_forward_kernel" if backward is not None else f"{subject.stem}_kernel"
    changed = _inputs_to_overwrite(subject, forward) if backward is None and choices.engine == "fx-lsp" else {}
    spec = ProgramSpec(forward, title, naming, hints, changed, graphs.generates)
    first, second = build_program(spec, choices), None
    if backward is not None:
        second = build_program(
            replace(spec, graph=backward, title=f"{subject.stem}_backward_kernel", changed={}), choices
        )
    return assemble_file(
        FileFunctions(subject, first, second, naming.name, graphs.view_results, graphs.saved, choices.engine)
    )


def _inputs_to_overwrite(subject: FileSpec, forward: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Return the inputs to overwrite by their new values. Returns {} if an operator takes its tensors as a list."""
    inputs = [n for n in forward.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.Tensor)]
    if len(inputs) > MAX_ARGUMENTS:
        return {}
    by_name = dict(zip(subject.inputs, inputs, strict=True))
    output: Any = next(n for n in reversed(forward.nodes) if n.op == "output").args[0]
    pairs = zip(output, (by_name[name] for name, _ in subject.changed), strict=False)
    return {new: old for new, old in pairs if isinstance(new, fx.Node) and new.op == "call_function"}
