"""Describe the peak memory of a training program: its parts, how it depends on the batch, and the batch that fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fx_lsp.features.wording.problems import describe
from fx_lsp.features.wording.text import format_bytes
from fx_lsp.features.wording.traces import place_text
from fx_lsp.model import Failure, MemoryFit, MemoryPart, MemoryPhase, Reduction, StepMemory

GIB = 1 << 30
GPUS = (16, 24, 40, 80)
"""The memory of common GPUs, in GiB."""
OTHER_BYTES = GIB
"""A guess of what the allocator does not get on a GPU: CUDA's context, and kernels that are loaded."""
WORKSPACES = (
    "workspaces are those of cuBLAS on Hopper (16 MiB before); what cuDNN allocates during a convolution is not counted"
)
_REDUCED: Mapping[Reduction, str] = {
    "checkpoint": "checkpoint each {of}",
    "bfloat16": "autocast to bfloat16 around {of}",
    "fused": "fused=True for {of}",
}
LEAST = 0.02
"""The part of the peak that a reduction has to save to be worth a line."""


@dataclass(frozen=True)
class BatchLine:
    """Hold the peak of a phase in bytes as a function of the batch: `slope` for each sample, and the `base`."""

    slope: float
    base: float

    @property
    def text(self) -> str:
        """Return `68 KiB · B + 84 MiB`, or `401 MiB` for a phase that does not depend on the batch."""
        base = format_bytes(max(round(self.base), 0))
        return f"{format_bytes(round(self.slope))} · B + {base}" if self.slope else base


Line = Literal[MemoryPhase, "reserved"]
Lines = Mapping[Line, BatchLine]


def batch_lines(fit: MemoryFit) -> Lines:
    """Return the line of each phase through its peaks with two batches, and that of what is reserved; empty without
    two.
    """
    memory, larger = fit.memory, fit.larger
    if larger is None or not 0 < memory.batch < larger.batch:
        return {}
    more = larger.batch - memory.batch
    few, many = (*memory.phases, memory.reserved), (*larger.phases, larger.reserved)
    slopes = [(after - before) / more for before, after in zip(few, many, strict=True)]
    bases = [before - slope * memory.batch for before, slope in zip(few, slopes, strict=True)]
    return dict(zip((*get_args(MemoryPhase), "reserved"), map(BatchLine, slopes, bases), strict=True))


def largest_batch(lines: Lines, gpu: int) -> int | None:
    """Return the most samples in a batch that fits a GPU of so many GiB, as a guess; 0 if none does, None if what is
    reserved does not depend on the batch.
    """
    free, line = gpu * GIB - OTHER_BYTES, lines.get("reserved", BatchLine(0, 0))
    if line.base > free:
        return 0
    return int((free - line.base) // line.slope) if line.slope > 0 else None


def peak_title(memory: StepMemory, place: str) -> str:
    """Return `peak 12.4 GiB in backward, at model.py:64`."""
    return f"peak {format_bytes(memory.peak)} in {memory.phase}" + (f", at {place}" if place else "")


def fit_lines(fit: MemoryFit, place: str) -> Iterator[str]:
    """Yield the peak with its parts and its `place`, what would reduce it, and the largest batches."""
    memory, lines = fit.memory, batch_lines(fit)
    amounts: dict[MemoryPart, int] = {part: getattr(memory, part) for part in get_args(MemoryPart)}
    parts = " + ".join(f"{part} {format_bytes(amount)}" for part, amount in amounts.items() if amount)
    at = f", at {place}" if place else ""
    yield f"peak {format_bytes(memory.peak)} = {parts}: in {memory.phase}{at}"
    if memory.device == "cpu":
        yield "the program trains on the CPU"
    else:
        yield f"reserved {format_bytes(memory.reserved)}, by the rules of PyTorch's allocator"
    yield from (f"note: {note}" for note in fit.notes)
    for reduction, less in worthwhile(fit).items():
        what = _REDUCED[reduction].format(of=less.reduced)
        more = less.flops / max(memory.flops, 1) - 1
        flops = f", {more:+.0%} FLOPs" if abs(more) >= 0.005 else ""
        yield f"{what}: −{format_bytes(memory.peak - less.peak)}{flops}"
    largest = {gpu: largest_batch(lines, gpu) for gpu in GPUS}
    if not lines:
        yield "the largest batch is unknown: no DataLoader and no number in this file tells the batch"
        return
    yield f"with B samples, now {memory.batch:,}: " + ", ".join(f"{name} {line.text}" for name, line in lines.items())
    if batches := ", ".join(f"{batch:,} in {gpu} GiB" for gpu, batch in largest.items() if batch is not None):
        yield f"largest batch (a guess): {batches}, with {format_bytes(OTHER_BYTES)} for all else"


def worthwhile(fit: MemoryFit) -> Mapping[Reduction, StepMemory]:
    """Return the reductions that apply to something and save enough of the peak, the best first."""
    enough = (1 - LEAST) * fit.memory.peak
    less = sorted(fit.reduced.items(), key=lambda entry: entry[1].peak)
    return {name: memory for name, memory in less if memory.reduced and memory.peak <= enough}


def fit_data(fit: MemoryFit) -> dict[str, Any]:
    """Return the peak as stable data for scripts, in bytes; the largest batches are guesses, by GiB of the GPU."""
    memory, lines = fit.memory, batch_lines(fit)
    return {
        "peak": memory.peak,
        "reserved": memory.reserved,
        "parts": {part: getattr(memory, part) for part in get_args(MemoryPart)},
        "phase": memory.phase,
        "place": None if memory.span is None else {"file": memory.span.file, "line": memory.span.line},
        "device": memory.device,
        "batch": memory.batch or None,
        "reductions": {
            name: {"of": less.reduced, "peak": less.peak, "flops": less.flops / max(memory.flops, 1)}
            for name, less in worthwhile(fit).items()
        },
        "by_batch": {phase: {"slope": line.slope, "base": line.base} for phase, line in lines.items()},
        "largest_batch": {str(gpu): largest_batch(lines, gpu) for gpu in GPUS},
    }


def fit_page(fit: MemoryFit | Failure, file: str) -> str:
    """Return the memory of a program in a file as a page, or why there is none."""
    if isinstance(fit, Failure):
        return f"# no peak: {describe(fit)}"
    return "\n".join([*fit_lines(fit, place_text(file, fit.memory.span)), WORKSPACES])
