"""Choose what a debugger shows beside the lines of a function at which it has stopped: the shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fx_lsp.features.wording.text import is_tensor_spec
from fx_lsp.model import Span, Target, Trace


class InlineValue(NamedTuple):
    """Hold an expression for the debugger to evaluate in the frame at which it has stopped, and to show at `span`."""

    span: Span
    expression: str


def inline_values(target: Target, trace: Trace, stopped: int) -> Iterator[InlineValue]:
    """Yield the shapes of a target's tensors that are bound before the line `stopped`, once for each line and name.

    The trace says which names are tensors. The debugger says what they are in this run.
    """
    at = target.name_span
    bound = [(item.name, item.spec, at) for item in trace.inputs]
    bound += [(value.name, value.spec, value.span) for value in trace.values if value.name != "return"]
    inside = (
        (name, spec, span)
        for name, spec, span in bound
        if span.file == target.file and target.span.line <= span.line < stopped
    )
    yielded: set[tuple[int, str]] = set()
    for name, spec, span in inside:
        if name.isidentifier() and is_tensor_spec(spec) and (span.line, name) not in yielded:
            yielded.add((span.line, name))
            yield InlineValue(span, f"{name}.shape")
