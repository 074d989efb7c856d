"""From samples to timings, fractions and warnings."""

from __future__ import annotations

import pytest

from fx_lsp.bench.runner.summary import fractions, timing, warnings
from fx_lsp.bench.variant import tuning
from fx_lsp.measured import Ceilings, Cost, Timing

STEADY = Timing(0.1, 0.099, 0.101, 0.1, 600)
CARD = Ceilings(4e12, 8e14, "bf16")


def test_a_timing_is_two_measurements():
    found = timing([float(n) for n in range(1, 12)], [7.0, 5.0, 6.0])
    assert found == Timing(6.0, 2.0, 10.0, 6.0, 14)
    assert timing([1.0], [2.0]) == Timing(1.0, 1.0, 1.0, 2.0, 2)
    assert timing([1.0], []) is None


def test_fractions_are_of_what_the_function_needs():
    cost = Cost("", "forward", bytes=200_000_000, flops=40_000_000_000)
    assert fractions({"graph": STEADY}, cost, CARD) == pytest.approx((0.5, 0.5))
    assert fractions({"wall": STEADY}, cost, CARD) == (None, None)  # the launch is in it
    assert fractions({"events": STEADY}, cost, None) == (None, None)


def test_without_products_there_is_no_rate():
    assert fractions({"graph": STEADY}, Cost("", "forward", 400_000_000, 0), CARD) == (pytest.approx(1.0), None)


def test_a_steady_time_is_trusted():
    assert warnings({"graph": STEADY}, 0.93, None) == ()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Timing(0.002, 0.002, 0.002, 0.002, 9), "graph: 2.0 µs is too short to be measured well; use larger inputs."),
        (Timing(1.0, 0.8, 1.4, 1.0, 9), "graph: too noisy, the middle 80 % of samples span 60% of the median."),
        (Timing(1.0, 1.0, 1.0, 1.25, 9), "graph: a second measurement differs by 25%."),
        (Timing(0.0, 0.0, 0.0, 0.0, 9), "graph: no time passed, so no work ran."),
    ],
)
def test_why_a_time_may_mislead(found: Timing, said: str):
    assert warnings({"graph": found}, None, None) == (said,)


def test_an_autotuner_says_what_it_tries():
    class Tuner:
        configs = (1, 2, 3)
        fn = test_a_steady_time_is_trusted

        def bench(self, config: int) -> int:
            return config

    said: list[str] = []
    bench = tuning._counted(Tuner.bench, "configs", said.append)
    tuner = Tuner()
    assert [bench(tuner, config) for config in Tuner.configs] == [1, 2, 3]
    assert said == [f"autotune configuration {n} of 3 of test_a_steady_time_is_trusted" for n in (1, 2, 3)]


def test_faster_than_the_card():
    found = warnings({"graph": STEADY}, 1.6, 1.2)
    assert [w.split(":")[0] for w in found] == [
        "Faster than the GPU can copy what it reads and writes (1.60 of the bandwidth)",
        "Faster than the GPU multiplies matrices (1.20 of the rate)",
    ]
