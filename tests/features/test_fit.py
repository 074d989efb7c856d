"""Print if a training program fits a GPU: its peak by parts, and as a function of the batch."""

from __future__ import annotations

from dataclasses import replace

from inline_snapshot import snapshot

from fx_lsp.features.costs.fit import BatchLine, batch_lines, fit_data, fit_lines, fit_page, largest_batch
from fx_lsp.model import Failure, MemoryFit, Reduction, Span, StepMemory

MIB, GIB = 1 << 20, 1 << 30
PLACE = Span("/project/model.py", 64, 0, 64, 0)
SMALL = StepMemory(
    parameters=2 * GIB,
    gradients=0,
    optimizer=4 * GIB,
    saved=3 * GIB,
    temporary=1 * GIB,
    workspaces=0,
    phase="backward",
    span=PLACE,
    batch=8,
    phases=(9 * GIB, 10 * GIB, 8 * GIB),
    reserved=11 * GIB,
    flops=1000,
)
LARGE = replace(SMALL, batch=16, phases=(11 * GIB, 14 * GIB, 8 * GIB), reserved=15 * GIB)
LESS: dict[Reduction, StepMemory] = {
    "checkpoint": replace(SMALL, saved=1 * GIB, flops=1300, reduced="Block"),
    "fused": replace(SMALL, optimizer=1 * GIB, reduced="AdamW"),
    "bfloat16": SMALL,
}


def test_a_peak_is_the_sum_of_its_parts():
    assert SMALL.peak == 10 * GIB
    assert [*fit_lines(MemoryFit(SMALL, LARGE, LESS, ("it stops",)), "m.py:64")] == snapshot(
        [
            "peak 10 GiB = parameters 2 GiB + optimizer 4 GiB + saved 3 GiB + temporary 1 GiB: in backward, at m.py:64",
            "reserved 11 GiB, by the rules of PyTorch's allocator",
            "note: it stops",
            "fused=True for AdamW: −3 GiB",
            "checkpoint each Block: −2 GiB, +30% FLOPs",
            "with B samples, now 8: forward 256 MiB · B + 7 GiB, backward 512 MiB · B + 6 GiB, optimizer 8 GiB, "
            "reserved 512 MiB · B + 7 GiB",
            "largest batch (a guess): 16 in 16 GiB, 32 in 24 GiB, 64 in 40 GiB, 144 in 80 GiB, with 1 GiB for all else",
        ]
    )


def test_each_phase_is_a_line_and_what_is_reserved_limits_the_batch():
    lines = batch_lines(MemoryFit(SMALL, LARGE, {}))
    assert lines == {
        "forward": BatchLine(GIB / 4, 7 * GIB),
        "backward": BatchLine(GIB / 2, 6 * GIB),
        "optimizer": BatchLine(0.0, 8 * GIB),
        "reserved": BatchLine(GIB / 2, 7 * GIB),
    }
    assert largest_batch(lines, 16) == 16, "15 GiB less 7 GiB, at 512 MiB for each sample"
    assert largest_batch(lines, 7) == 0, "what no sample changes needs more than 6 GiB"


def test_without_a_second_batch_the_largest_is_unknown():
    for fit in (MemoryFit(SMALL, None, {}), MemoryFit(replace(SMALL, batch=0), LARGE, {}), MemoryFit(LARGE, SMALL, {})):
        assert [*fit_lines(fit, "")][2:] == snapshot(
            ["the largest batch is unknown: no DataLoader and no number in this file tells the batch"]
        )
        assert set(fit_data(fit)["largest_batch"].values()) == {None}


def test_a_page_says_where_the_peak_is_or_why_there_is_none():
    assert fit_page(MemoryFit(SMALL, None, {}), "/project/model.py").splitlines()[0].endswith("in backward, at line 64")
    assert fit_page(Failure("unsupported", "no optimizer steps", None), "m.py") == "# no peak: no optimizer steps."


def test_a_program_that_trains_on_the_cpu_says_so():
    assert "the program trains on the CPU" in [*fit_lines(MemoryFit(replace(SMALL, device="cpu"), None, {}), "")]
