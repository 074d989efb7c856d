"""A report as a lens, a table and a hover."""

from dataclasses import replace

import pytest
from inline_snapshot import snapshot

from fx_lsp.features.costs.benchmark import hover, kernel_facts, legend, lens_title, short_gpu, table
from fx_lsp.measured import BenchmarkRun, Ceilings, Cost, KernelTime, Machine, Measured, Report, Timing

CARD = Machine(
    python="3.12.3",
    torch="2.11.0",
    triton="3.6.0",
    gpu="NVIDIA H200",
    driver="570.86",
    sm_clock=1830,
    sm_clock_most=1980,
    temperature=61,
)
COST = Cost("", "forward", 134_217_728, 0, ("x: bf16[8192, 4096]",))


def timed(variant: str, graph: float, wall: float, **more: object) -> Measured:
    timings = {clock: Timing(t, t * 0.98, t * 1.04, t, 600) for clock, t in (("graph", graph), ("wall", wall)) if t}
    return Measured(variant, "", "forward", timings, True, setup_seconds=2.5, **more)  # pyright: ignore[reportArgumentType]


REPORT = Report(
    "softmax",
    CARD,
    Ceilings(4.2e12, 7.5e14, "bf16"),
    (COST,),
    (
        timed("eager", 0.109, 0.121),
        Measured("torchscript", "", "forward", error="It cannot be scripted: a generator"),
        timed(
            "compile", 0.083, 0.12, bandwidth_fraction=0.385, warnings=("wall: a second measurement differs by 12%.",)
        ),
        timed("kernels", 0.0345, 0.05, bandwidth_fraction=0.926),
        Measured("liger", "", "forward", right=False, verdicts=("out is wrong: off by 2.0e-01.",), setup_seconds=0.4),
    ),
    (),
    1_760_000_000.0,
    93.4,
)


def test_the_table_of_a_run():
    assert table(REPORT) == snapshot("""\
softmax · NVIDIA H200 · torch 2.11.0 · triton 3.6.0 · driver 570.86 · 1830 of 1980 MHz · 61 °C
2025-10-09 08:53 UTC · took 93 s
copies at 4.20 TB/s, bf16 products at 750 TFLOP/s

forward · x: bf16[8192, 4096] · 128 MiB
  variant           right           graph            wall     ×  bandwidth  setup
  eager               yes  0.1090 ±0.0033  0.1210 ±0.0036  1.00             2.5 s
  torchscript           –
  compile             yes  0.0830 ±0.0025  0.1200 ±0.0036  1.31       0.39  2.5 s
  kernels             yes  0.0345 ±0.0010  0.0500 ±0.0015  3.16       0.93  2.5 s
  liger                NO                                                   0.4 s
  (the bytes need)                 0.0320
  torchscript: It cannot be scripted: a generator
  compile: wall: a second measurement differs by 12%.
  liger: out is wrong: off by 2.0e-01.
""")
    assert legend(REPORT) == snapshot("""\
Milliseconds per call: median ± half of the spread of the middle 80 %.
  graph   in a replayed CUDA graph, without launch overhead
  wall    host wall-clock time from launch until the device is idle
  ×       speedup over eager, by the first of these clocks that both have
""")


def test_a_kernel_bound_by_products():
    cost = replace(COST, flops=268_435_456_000)
    row = timed("kernels", 0.4, 0.5, bandwidth_fraction=0.08, rate_fraction=0.89)
    report = replace(REPORT, costs=(cost,), measured=(timed("compile", 0.44, 0.5), row))
    assert lens_title(report) == snapshot("1.10× compile · 0.89 of the matrix rate · H200")
    assert table(report).splitlines()[4:] == snapshot(
        [
            "forward · x: bf16[8192, 4096] · 128 MiB · 268 GFLOP",
            "  variant              right           graph            wall  bandwidth  rate  setup",
            "  compile                yes  0.4400 ±0.0132  0.5000 ±0.0150                   2.5 s",
            "  kernels                yes  0.4000 ±0.0120  0.5000 ±0.0150       0.08  0.89  2.5 s",
            "  (the products need)                 0.3579",
        ]
    )


def test_the_lens():
    assert lens_title(REPORT) == snapshot("2.41× compile · 0.93 of bandwidth · H200")
    assert lens_title(REPORT, stale=True) == snapshot("stale · 2.41× compile · 0.93 of bandwidth · H200")


KERNELS = REPORT.measured[3]


@pytest.mark.parametrize(
    ("change", "title"),
    [
        ({"right": False, "timings": {}, "verdicts": ("It changes its input x.",)}, "kernels are wrong · H200"),
        ({"timings": {}, "error": "Triton's interpreter"}, "kernels are right, not timed · H200"),
        ({"timings": {}, "right": None, "error": "It was ended."}, "kernels not run · H200"),
        ({"warnings": ("too noisy",)}, "2.41× compile · 0.93 of bandwidth · with warnings · H200"),
        ({"variant": "other"}, "measured without the kernels · H200"),
    ],
)
def test_a_lens_says_what_is_wrong(change: dict[str, object], title: str):
    rows = [replace(r, **change) if r is KERNELS else r for r in REPORT.measured]  # pyright: ignore[reportArgumentType]
    assert lens_title(replace(REPORT, measured=tuple(rows))) == title


def test_without_compile_it_is_compared_with_eager():
    rows = tuple(r for r in REPORT.measured if r.variant in ("eager", "kernels"))
    assert lens_title(replace(REPORT, measured=rows)) == "3.16× eager · 0.93 of bandwidth · H200"


def test_variants_are_compared_by_a_clock_that_both_have():
    """A CUDA graph of its own cannot be put in another one."""
    rows = (timed("compile", 0.0, 0.1), KERNELS)
    assert lens_title(replace(REPORT, measured=rows)) == "2.00× compile · 0.93 of bandwidth · H200"


def test_the_hover():
    assert hover(BenchmarkRun("/p/model.py", "rms_norm", "h200", REPORT)) == snapshot("""\
**2.41× compile · 0.93 of bandwidth · H200**

forward

| variant | ms | × eager |
|---|---|---|
| eager | 0.1090 ±0.0033 | 1.00 |
| torchscript | – |  |
| compile | 0.0830 ±0.0025 | 1.31 |
| kernels | 0.0345 ±0.0010 | 3.16 |
| liger | wrong |  |\
""")


def test_a_sweep_has_a_table_for_each_case():
    sizes = (1024, 65536)
    rows = tuple(replace(KERNELS, label=f"N={n}", what=w) for n in sizes for w in ("forward", "both"))
    report = replace(REPORT, measured=rows, costs=(), warnings=("The GPU is shared: python (42) ran on it as well.",))
    assert table(report).splitlines()[3:] == snapshot(
        [
            "",
            "N=1024 · forward",
            "  variant  right           graph            wall  bandwidth  setup",
            "  kernels    yes  0.0345 ±0.0010  0.0500 ±0.0015       0.93  2.5 s",
            "",
            "N=1024 · forward and backward",
            "  variant  right           graph            wall  bandwidth  setup",
            "  kernels    yes  0.0345 ±0.0010  0.0500 ±0.0015       0.93  2.5 s",
            "",
            "N=65536 · forward",
            "  variant  right           graph            wall  bandwidth  setup",
            "  kernels    yes  0.0345 ±0.0010  0.0500 ±0.0015       0.93  2.5 s",
            "",
            "N=65536 · forward and backward",
            "  variant  right           graph            wall  bandwidth  setup",
            "  kernels    yes  0.0345 ±0.0010  0.0500 ±0.0015       0.93  2.5 s",
            "",
            "Warning: The GPU is shared: python (42) ran on it as well.",
        ]
    )


def test_a_cpu_is_named_where_there_is_no_gpu():
    report = replace(REPORT, machine=Machine(torch="2.11.0", cpu="AMD EPYC", threads=16), ceilings=None, measured=())
    assert table(report).splitlines()[0] == "softmax · AMD EPYC, 16 threads · torch 2.11.0"


def test_what_a_profile_says_of_kernels():
    metrics = {"launch__registers_per_thread": 40.0, "sm__warps_active.avg.pct_of_peak_sustained_active": 71.3}
    found = (
        KernelTime("kernels", "", "forward", "softmax_kernel", 1, 31.25, metrics),
        KernelTime("kernels", "", "both", "softmax_backward_kernel", 2, 80.0),
        KernelTime("compile", "", "both", "triton_red_fused_0", 1, 90.0),
    )
    assert kernel_facts(found) == snapshot(
        {
            "softmax_kernel": ["forward: 31.2 µs, 71 % occupancy, 40 registers per thread"],
            "softmax_backward_kernel": ["both: 80.0 µs in 2 launches"],
        }
    )
    assert table(replace(REPORT, measured=(), kernels=found)).splitlines()[3:] == snapshot(
        [
            "",
            "kernels of kernels · forward",
            "       31.2 µs  1×  softmax_kernel, 71 % occupancy, 40 registers per thread",
            "",
            "kernels of kernels · both",
            "       80.0 µs  2×  softmax_backward_kernel",
            "",
            "kernels of compile · both",
            "       90.0 µs  1×  triton_red_fused_0",
        ]
    )


@pytest.mark.parametrize(
    ("name", "short"),
    [("NVIDIA H200", "H200"), ("NVIDIA GeForce RTX 4090", "RTX 4090"), ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB")],
)
def test_cards_by_the_names_that_people_use(name: str, short: str):
    assert short_gpu(name) == short
