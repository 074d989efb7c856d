"""What a tracer runs to get to a step: the module with it, and the calls of the function around its loop.

Reads syntax only."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Protocol

from fx_lsp.model import CallSite, Span, Target
from fx_lsp.steps import Step
from fx_lsp.tracing.slicing import Slice, SourceGraph
from fx_lsp.tracing.step_slices import StepPart, step_part

CALLS = 2
"""How many calls of the function around a step are tried, each with what its loop goes through and without."""


class Sites(Protocol):
    """Finds the calls of a target, of which only a part runs."""

    def __call__(self, target: Target, *, part: StepPart | None = None, limit: int = CALLS) -> tuple[CallSite, ...]: ...


def step_slice(step: Step, text: str, graph: SourceGraph, also: Collection[str] = (), batches: bool = False) -> Slice:
    """The part of a file that a step needs, and what the names `also` stand for; with `batches` also its batches."""
    part = step_part(step, text, graph.tree, batches)
    others = {*part.names, *also} - {getattr(step.path[0], "name", "") if step.path else ""}
    return graph.slice_of({**graph.slice("", others).kept, **part.lines})


def step_sites(step: Step, file: str, text: str, graph: SourceGraph, sites: Sites) -> tuple[CallSite, ...]:
    """What gets to a step with the batches of its loop, then what gets there without."""
    part = step_part(step, text, graph.tree, batches=True)
    if part.function is None:
        return (CallSite(file, step.region.lineno, step_slice(step, text, graph, batches=True).text),)
    first = step.path[0]
    name = part.function.name if first is part.function else f"{getattr(first, 'name', '')}.{part.function.name}"
    place = Span(file, part.function.lineno, 0, part.function.lineno, 0)
    around = Target(file, name, "function" if isinstance(first, ast.FunctionDef) else "method", place, place)
    lean = step_part(step, text, graph.tree, batches=False)
    return (*sites(around, part=part, limit=CALLS), *sites(around, part=lean, limit=CALLS))
