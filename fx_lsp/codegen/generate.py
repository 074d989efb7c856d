"""From the graphs of a target to its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import fx

from fx_lsp.codegen.emit import Naming
from fx_lsp.codegen.file import Generated, Subject, file_of
from fx_lsp.codegen.program import program


def decompositions() -> dict[Any, Callable[..., Any]]:
    """What graphs are made with before kernels are: the operations that remain are those that Inductor has to lower."""
    from torch._inductor.decomposition import select_decomp_table

    return dict(select_decomp_table())


def generate(
    subject: Subject,
    forward: fx.Graph,
    backward: fx.Graph | None,
    naming: Naming,
    hints: Mapping[str, int] | None = None,
) -> Generated:
    """The file for a function that has these graphs.

    Forward returns the results of the function and then what backward takes under the same names. Raises Unsupported
    where a part of the graphs cannot be written down.
    """
    title = f"{subject.name}_forward_kernel" if backward is not None else f"{subject.name}_kernel"
    first = program(forward, title, naming, hints or {})
    second = program(backward, f"{subject.name}_backward_kernel", naming, hints or {}) if backward is not None else None
    return file_of(subject, first, second, naming.name)
