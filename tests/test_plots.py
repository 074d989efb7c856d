"""Pictures of a benchmark: which there are, and what they say."""

from __future__ import annotations

import re

import pytest

from fx_lsp.measured import Ceilings, Cost, Machine, Measured, Report, Timing

plots = pytest.importorskip("fx_lsp.commands.plots", reason="needs matplotlib")

CARD = Ceilings(4e12, 8e14, "bf16")


def report(labels: tuple[str, ...] = ("",), flops: int = 0, ceilings: Ceilings | None = CARD) -> Report:
    rows = [
        Measured(name, label, what, {"events": Timing(ms, ms * 0.9, ms * 1.2, ms, 100)})
        for label in labels
        for name, ms in (("eager", 0.5), ("kernels", 0.05), ("by hand", 0.06))
        for what in ("forward", "both")
    ]
    failed = Measured("torchscript", labels[0], "forward", error="It cannot be scripted.")
    costs = [Cost(label, what, 10**8, flops) for label in labels for what in ("forward", "both")]
    machine = Machine(gpu="NVIDIA H200", torch="2.11.0")
    return Report("rms_norm", machine, ceilings, tuple(costs), (*rows, failed), (), 0.0, 1.0)


def words(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_times_and_bandwidth():
    found = plots.pictures(report())
    assert list(found) == ["times", "roofline"]
    assert {"eager", "kernels", "by hand", "0.0500 ms", "forward and backward"} <= {*words(found["times"])}
    assert "rms_norm · NVIDIA H200 · torch 2.11.0" in words(found["times"])
    assert "2 TB/s · 50%" in words(found["roofline"])
    assert "torchscript" not in words(found["times"])


def test_a_roofline_of_products():
    said = words(plots.pictures(report(flops=10**10))["roofline"])
    assert {"matrix products in bf16: 800 TFLOP/s", "copy: 4 TB/s", "by hand"} <= {*said}


def test_a_sweep():
    found = plots.pictures(report(("N=1024", "N=2048", "N=4096")))
    assert list(found) == ["roofline", "sweep"]
    assert {"1,024", "2,048", "4,096", "N", "ms", "kernels"} <= {*words(found["sweep"])}


def test_what_is_not_known_is_not_drawn():
    assert list(plots.pictures(report(ceilings=None))) == ["times"]
    nothing = Report("f", Machine(), None, (), (), (), 0.0, 0.0)
    assert plots.pictures(nothing) == {}


def test_pictures_repeat_themselves():
    assert plots.pictures(report()) == plots.pictures(report())


def test_nothing_is_black_or_white():
    for svg in plots.pictures(report(flops=10**10)).values():
        drawn = svg[svg.index("</defs>") :] if "</defs>" in svg else svg
        assert not re.search(r"(?:fill|stroke): ?(?:#000000|#ffffff|black|white)", drawn)
