"""Slice a file to the part that the step of a loop needs: of the loop's body, of the code before the loop, and of the
module; and to the calls of the function around the loop. Reads syntax only.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from fx_lsp.model import CallSite, Span, Target
from fx_lsp.syntax import FunctionNode
from fx_lsp.tracing.slicing.backward_slice import Backwards, KeptCode, render
from fx_lsp.tracing.slicing.entry_point import runs_long
from fx_lsp.tracing.slicing.module_slice import Slice, SourceGraph
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.tensor_code import collect_imports
from fx_lsp.training.function import has_idle_head
from fx_lsp.training.results import wanted_by
from fx_lsp.training.step import Step

CALLS = 2
"""The most calls of the function around a step that are tried, each with its loop's batches and without."""


@dataclass(frozen=True)
class StepPart:
    """Hold the lines of the statements around a step, by number, the module's names that they read, and the names of
    the function around it (`function`, None at the top level) that the step reads as its parameters.
    """

    lines: Mapping[int, str]
    names: frozenset[str]
    function: FunctionNode | None
    read: frozenset[str]


def step_part(step: Step, graph: SourceGraph, batches: bool) -> StepPart:
    """Return the code that the step needs; with `batches` also that of its loop's iterable."""
    region, path, index = step.region, step.path, graph.index
    functions = [node for node in path if isinstance(node, ast.FunctionDef)]
    imported = {*index.imports, *collect_imports(walk(functions[0]) if functions else ())}
    inner = Backwards(imported, wanted=wanted_by(region), strict=True)
    inner.bind(region.body)
    if isinstance(region, ast.FunctionDef):
        inner.leave(region)
    elif isinstance(region, ast.For):
        inner.names -= {part.id for part in walk(region.target) if isinstance(part, ast.Name)}
        inner.names |= {part.id for part in walk(region.iter) if isinstance(part, ast.Name)} if batches else set()
    outer = Backwards(imported, inner.names, inner.kept | {region}, runs_long)
    way = (*path, region)
    outer.follow(() if functions or isinstance(way[0], ast.FunctionDef) else index.body, way, has_idle_head)
    nodes = [node for node in index.body if node in outer.kept]
    lines = render(graph.text, nodes, KeptCode(outer.kept, way, inside=True, choices=outer.choices))
    return StepPart(lines, frozenset(outer.names), functions[0] if functions else None, frozenset(outer.read))


class Sites(Protocol):
    """Find the calls of a target of which only a part runs."""

    def __call__(self, target: Target, *, part: StepPart | None = None, limit: int = CALLS) -> tuple[CallSite, ...]: ...


def step_slice(step: Step, graph: SourceGraph, also: Collection[str] = (), batches: bool = False) -> Slice:
    """Return the part of a file that a step and the names `also` need; with `batches` also its batches."""
    part = step_part(step, graph, batches)
    others = {*part.names, *also} - {getattr(step.path[0], "name", "") if step.path else ""}
    return graph.slice_of({**graph.slice("", others).kept, **part.lines})


def step_sites(step: Step, file: str, graph: SourceGraph, sites: Sites) -> tuple[CallSite, ...]:
    """Return the call sites that reach a step with the batches of its loop, then those without."""
    part = step_part(step, graph, batches=True)
    if part.function is None:
        return (CallSite(file, step.region.lineno, step_slice(step, graph, batches=True).text),)
    first = step.path[0]
    name = part.function.name if first is part.function else f"{getattr(first, 'name', '')}.{part.function.name}"
    place = Span(file, part.function.lineno, 0, part.function.lineno, 0)
    around = Target(file, name, "function" if isinstance(first, ast.FunctionDef) else "method", place, place)
    lean = step_part(step, graph, batches=False)
    return (*sites(around, part=part, limit=CALLS), *sites(around, part=lean, limit=CALLS))
