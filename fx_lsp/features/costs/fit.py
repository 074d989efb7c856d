"""Describe the peak memory of a training program: its parts, how it depends on the batch, and the batch that fits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from fx_lsp.features.wording.text import format_bytes
from fx_lsp.model import MemoryPart, MemoryPhase, StepMemory

GIB = 1 << 30
GPUS = (16, 24, 40, 80)
"""The memory of common GPUs, in GiB."""
FACTOR = 16
"""The ratio of the two batches that a line goes through."""
RESERVED_BYTES = GIB
"""A guess of what no tensor gets on a GPU: CUDA's context, workspaces of libraries, and gaps between blocks."""
WORKSPACES = (
    "workspaces inside operations are not counted: cuBLAS has 16 MiB (64 MiB on Hopper), cuDNN may need much more"
)
"""Twice the default of CUBLAS_WORKSPACE_CONFIG, by the architecture, in PyTorch's CublasHandlePool.cpp: the thread of
autograd has a workspace too.
"""


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


Lines = Mapping[MemoryPhase, BatchLine]


def batch_lines(memory: StepMemory, larger: StepMemory | None) -> Lines:
    """Return the line of each phase through its peaks with two batches; empty without two."""
    if larger is None or not 0 < memory.batch < larger.batch:
        return {}
    more = larger.batch - memory.batch
    slopes = [(many - few) / more for few, many in zip(memory.phases, larger.phases, strict=True)]
    bases = [few - slope * memory.batch for few, slope in zip(memory.phases, slopes, strict=True)]
    return dict(zip(get_args(MemoryPhase), map(BatchLine, slopes, bases), strict=True))


def largest_batch(lines: Lines, gpu: int) -> int | None:
    """Return the most samples in a batch that fits a GPU of so many GiB, as a guess; 0 if none does, None if the peak
    does not depend on the batch.
    """
    free = gpu * GIB - RESERVED_BYTES
    if any(line.base > free for line in lines.values()):
        return 0
    return min((int((free - line.base) // line.slope) for line in lines.values() if line.slope > 0), default=None)


def fit_lines(memory: StepMemory, lines: Lines, place: str) -> Iterator[str]:
    """Yield the peak with its parts and its `place`, and the largest batches."""
    amounts: dict[MemoryPart, int] = {part: getattr(memory, part) for part in get_args(MemoryPart)}
    parts = " + ".join(f"{part} {format_bytes(amount)}" for part, amount in amounts.items() if amount)
    at = f", at {place}" if place else ""
    yield f"peak {format_bytes(memory.peak)} = {parts}: in {memory.phase}{at}"
    if memory.device == "cpu":
        yield "the program trains on the CPU"
    largest = {gpu: largest_batch(lines, gpu) for gpu in GPUS}
    if None in largest.values():
        yield "the largest batch is unknown: the peak depends on no batch of a DataLoader"
        return
    yield f"with B samples, now {memory.batch:,}: " + ", ".join(f"{phase} {line.text}" for phase, line in lines.items())
    batches = ", ".join(f"{batch:,} in {gpu} GiB" for gpu, batch in largest.items())
    yield f"largest batch (a guess): {batches}, with {format_bytes(RESERVED_BYTES)} for all else"


def fit_data(memory: StepMemory, lines: Lines) -> dict[str, Any]:
    """Return the peak as stable data for scripts, in bytes; the largest batches are guesses, by GiB of the GPU."""
    return {
        "peak": memory.peak,
        "parts": {part: getattr(memory, part) for part in get_args(MemoryPart)},
        "phase": memory.phase,
        "place": None if memory.span is None else {"file": memory.span.file, "line": memory.span.line},
        "device": memory.device,
        "batch": memory.batch or None,
        "by_batch": {phase: {"slope": line.slope, "base": line.base} for phase, line in lines.items()},
        "largest_batch": {str(gpu): largest_batch(lines, gpu) for gpu in GPUS},
    }
