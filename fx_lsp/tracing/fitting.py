"""Measure the memory of a training program by several runs: as it is, with larger batches, and with reductions."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from fx_lsp.model import MEMORY, REDUCED, REDUCTIONS, Failure, MemoryFit, Reduction, StepMemory, Trace, write_work

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import Engine

FACTOR = 16
"""The ratio of the two batches that a line goes through."""


async def measured_fit(engine: Engine, file: str, name: str) -> MemoryFit | Failure:
    """Return the memory of the program `name` of a file, or why there is none."""
    outcome = await engine.outcome(file, name, MEMORY, final=True)
    if isinstance(outcome, Failure):
        return outcome
    assert outcome.memory is not None, "the memory was asked for"
    works = [{MEMORY: str(FACTOR)}, *({MEMORY: "", REDUCED: reduction} for reduction in REDUCTIONS)]
    larger, *reduced = await asyncio.gather(*(_with(engine, file, name, work) for work in works))
    memory = outcome.memory
    if larger is not None and larger.batch and not memory.batch:
        memory = replace(memory, batch=larger.batch // FACTOR)
    less: dict[Reduction, StepMemory] = {
        reduction: other for reduction, other in zip(REDUCTIONS, reduced, strict=True) if other is not None
    }
    return MemoryFit(memory, larger, less, outcome.notes)


async def _with(engine: Engine, file: str, name: str, work: dict[str, str]) -> StepMemory | None:
    """Return the memory of a program with a larger batch or a reduction, None if it fails with that."""
    outcome = await engine.outcome(file, name, write_work(work), final=True)
    return outcome.memory if isinstance(outcome, Trace) else None
