"""Draw a benchmark as SVG texts, by matplotlib: times, the GPU's limits, times over a sweep of sizes.

Everything except marks is grey on a transparent background, readable on light and dark pages.
"""

# pyright: reportUnknownMemberType=false

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, cast

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, StrMethodFormatter

from fx_lsp.measured import CLOCKS, EAGER, INDUCTOR_KERNELS, KERNELS, VARIANTS, Cost, Measured, Report, Timing

GREY, FAINT = "#808080", "#80808040"
_COLOURS = ("#b9b4ad", "#a0744f", "#c79a3a", "#3d85c6", "#45a7c9", "#2f6fb0", "#7aa6dc", "#d9482b", "#8e63c0")
_RIVALS = ("#3f9b4f", "#c2529a", "#5b9e98", "#a8a12c")
_MARKS = "oXDsv^<>P*"
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "fx-lsp",
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Segoe UI", "Helvetica", "Arial", "DejaVu Sans"],
    "font.size": 10,
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.titlecolor": GREY,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": FAINT,
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
}
_WHAT = {"forward": "forward", "backward": "backward", "both": "forward and backward"}


def pictures(report: Report) -> dict[str, str]:
    """Return the pictures that a report has data for, by name: "times", "roofline", "sweep"."""
    drawn: dict[str, Callable[[Report], Figure | None]] = {"times": _times, "roofline": _roofline, "sweep": _sweep}
    pictures_by_name: dict[str, str] = {}
    with mpl.rc_context(cast("Any", _STYLE)):
        for name, draw in drawn.items():
            figure = draw(report)
            if figure is not None:
                pictures_by_name[name] = _svg(figure)
    return pictures_by_name


def _times(report: Report) -> Figure | None:
    """Draw a bar for each variant, with its median as length, with the spread of the middle 80 %."""
    groups = _groups(report)
    if not groups or _sizes(report):
        return None
    rows = sum(len(group) for _, group in groups)
    figure, axes = _panels(report, len(groups), 1.1 * len(groups) + 0.32 * rows, [len(g) + 1.2 for _, g in groups])
    for (title, group), ax in zip(groups, axes, strict=True):
        timings = [timing for _, timing in group]
        longest = max(t.high for t in timings)
        for place, (measured, timing) in enumerate(group):
            ax.barh(place, timing.median, height=0.62, color=_colour(measured.variant))
            spread = [
                [timing.median - min(timing.low, timing.median)],
                [max(timing.high, timing.median) - timing.median],
            ]
            ax.errorbar(timing.median, place, xerr=spread, color=GREY, capsize=3, linewidth=1.2)
            ax.text(max(timing.high, timing.median) + longest * 0.02, place, _milliseconds(timing.median), va="center")
        ax.set_yticks(range(len(group)), [measured.variant for measured, _ in group])
        ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        ax.set_xlim(0, longest * 1.18)
        ax.grid(axis="x")
        ax.set_axisbelow(True)
        ax.set_title(title, loc="left")
    axes[-1].set_xlabel("ms, the median of one call; lines: the middle 80 %")
    return figure


def _roofline(report: Report) -> Figure | None:
    """Draw each variant's rate of bytes or operations against the GPU's limit."""
    if report.ceilings is None:
        return None
    costs = {(cost.label, cost.what): cost for cost in report.costs}
    points = [
        (cost, measured, timing)
        for measured, timing in _timed(report)
        if (cost := costs.get((measured.label, measured.what))) is not None and cost.bytes
    ]
    if not points:
        return None
    if any(cost.flops for cost, _, _ in points):
        return _by_intensity(report, [point for point in points if point[0].flops])
    return _bandwidths(report, points)


Point = tuple[Cost, Measured, Timing]


def _bandwidths(report: Report, points: Sequence[Point]) -> Figure:
    """Draw, for functions without matrix products, bytes per second, with the GPU's limit as a line."""
    assert report.ceilings is not None
    best = report.ceilings.copy_bytes_per_second
    names = [f"{_WHAT[m.what]}{f', {m.label}' if m.label else ''}" for _, m, _ in points]
    groups = list(dict.fromkeys(names))
    if len(groups) > 6:  # of a sweep, the largest size is the most informative
        groups = groups[-len({m.what for _, m, _ in points}) :]
    rows = [[p for p, name in zip(points, names, strict=True) if name == group] for group in groups]
    heights = [len(row) + 1.2 for row in rows]
    figure, axes = _panels(report, len(groups), 1.1 * len(groups) + 0.32 * sum(map(len, rows)), heights)
    for group, row, ax in zip(groups, rows, axes, strict=True):
        for place, (cost, measured, timing) in enumerate(row):
            rate = cost.bytes / timing.median * 1e3
            ax.barh(place, rate, height=0.62, color=_colour(measured.variant))
            said = f"{_bytes_per_second(rate)} · {rate / best:.0%}"
            ax.text(0.995, place, said, va="center", ha="right", transform=ax.get_yaxis_transform())
        ax.axvline(best, color=GREY, linestyle="--", linewidth=1.2)
        ax.set_yticks(range(len(row)), [measured.variant for _, measured, _ in row])
        ax.tick_params(axis="y", length=0)
        ax.invert_yaxis()
        ax.set_xlim(0, 1.35 * max(best, *(cost.bytes / timing.median * 1e3 for cost, _, timing in row)))
        ax.xaxis.set_major_formatter(FuncFormatter(_bytes_per_second))
        ax.set_title(group, loc="left")
    axes[-1].set_xlabel(
        f"minimum bytes of the function, per second; dashed: a copy on this GPU, {_bytes_per_second(best)}"
    )
    return figure


def _by_intensity(report: Report, points: Sequence[Point]) -> Figure:
    """Draw the roofline: operations per second over operations per byte."""
    assert report.ceilings is not None
    copy, matmul = report.ceilings.copy_bytes_per_second, report.ceilings.matmul_flops_per_second
    figure, (ax,) = _panels(report, 1, 4.2, [1])
    intensities = [cost.flops / cost.bytes for cost, _, _ in points]
    ridge = matmul / copy
    low, high = min(*intensities, ridge) / 8, max(*intensities, ridge) * 4
    ax.plot([low, ridge, high], [low * copy, matmul, matmul], color=GREY, linewidth=1.6)
    middle = math.sqrt(low * ridge)
    ax.text(middle * 0.85, middle * copy, f"copy: {_bytes_per_second(copy)}", ha="right", va="bottom")
    kind = f" in {report.ceilings.dtype}" if report.ceilings.dtype else ""
    ax.text(high, matmul * 1.12, f"matrix products{kind}: {_flops_per_second(matmul)}", ha="right", va="bottom")
    marks = dict(zip(dict.fromkeys(m.what for _, m, _ in points), _MARKS, strict=False))
    rates = [cost.flops / timing.median * 1e3 for cost, _, timing in points]
    for (cost, measured, _), rate in zip(points, rates, strict=True):
        mark, colour = marks[measured.what], _colour(measured.variant)
        ax.plot(cost.flops / cost.bytes, rate, mark, color=colour, markersize=7)
    for name in dict.fromkeys(measured.variant for _, measured, _ in points):
        ax.plot([], [], "o", color=_colour(name), label=name)
    for what, mark in marks.items() if len(marks) > 1 else ():
        ax.plot([], [], mark, color=GREY, fillstyle="none", label=_WHAT[what])
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(min(*rates, low * copy) / 2, max(*rates, matmul) * 2.5)
    ax.grid(which="major")
    ax.yaxis.set_major_formatter(FuncFormatter(_flops_per_second))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    ax.set_xlabel("operations per byte (minimum of the function)")
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _sweep(report: Report) -> Figure | None:
    """Draw the time of each variant over the sizes, with the middle 80 % shaded."""
    sizes = _sizes(report)
    if not sizes:
        return None
    timed = list(_timed(report))
    whats = list(dict.fromkeys(measured.what for measured, _ in timed))
    figure, axes = _panels(report, len(whats), 3.4 * len(whats), [1] * len(whats))
    for what, ax in zip(whats, axes, strict=True):
        lines = [(m, t) for m, t in timed if m.what == what]
        for name in dict.fromkeys(measured.variant for measured, _ in lines):
            line = [(sizes[measured.label], t) for measured, t in lines if measured.variant == name]
            x, middle = [size for size, _ in line], [t.median for _, t in line]
            ax.fill_between(
                x, [t.low for _, t in line], [t.high for _, t in line], color=_colour(name), alpha=0.18, lw=0
            )
            ax.plot(x, middle, marker=_mark(name), color=_colour(name), label=name, linewidth=1.6, markersize=5)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xticks(sorted(set(sizes.values())), [f"{size:,}" for size in sorted(set(sizes.values()))])
        ax.xaxis.set_minor_formatter(NullFormatter())
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.tick_params(axis="x", labelrotation=30 if len(sizes) > 7 else 0)
        ax.grid(which="major")
        ax.set_ylabel("ms")
        ax.set_title(_WHAT[what], loc="left")
        ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    axes[-1].set_xlabel(next(iter(sizes)).partition("=")[0])
    return figure


def _panels(report: Report, number: int, height: float, heights: Sequence[float]) -> tuple[Figure, list[Axes]]:
    """Return a figure with a title of the target and the machine, and axes one below the other."""
    figure = Figure(figsize=(7.6, height + 0.8), layout="constrained")
    axes = figure.subplots(number, 1, squeeze=False, height_ratios=list(heights))
    where = report.machine.gpu or report.machine.cpu
    torch = f"torch {report.machine.torch}" if report.machine.torch else ""
    figure.suptitle(" · ".join(part for part in (report.name, where, torch) if part), fontsize=11)
    return figure, [row[0] for row in axes]


def _timed(report: Report) -> list[tuple[Measured, Timing]]:
    """Return the rows with times, each by its preferred clock."""
    timings = ((m, next((m.timings[clock] for clock in CLOCKS if clock in m.timings), None)) for m in report.measured)
    return [(measured, timing) for measured, timing in timings if timing is not None]


def _groups(report: Report) -> list[tuple[str, list[tuple[Measured, Timing]]]]:
    """Return groups of comparable variants with their titles."""
    groups: dict[str, list[tuple[Measured, Timing]]] = {}
    for measured, timing in _timed(report):
        title = " · ".join(part for part in (_WHAT[measured.what], measured.label) if part)
        groups.setdefault(title, []).append((measured, timing))
    return list(groups.items())


def _sizes(report: Report) -> dict[str, int]:
    """Return the size of each label of a sweep; empty without a sweep."""
    labels = dict.fromkeys(measured.label for measured, _ in _timed(report))
    sizes = {label: int(match[1]) for label in labels if (match := re.fullmatch(r"\w+=(\d+)", label))}
    return sizes if len(sizes) > 1 and len(sizes) == len(labels) else {}


def _colour(variant: str) -> str:
    if variant in VARIANTS:
        return _COLOURS[VARIANTS.index(variant) % len(_COLOURS)]
    return _RIVALS[sum(variant.encode()) % len(_RIVALS)]


def _mark(variant: str) -> str:
    special = {EAGER: "s", KERNELS: "o", INDUCTOR_KERNELS: "D"}
    return special.get(variant, "." if variant in VARIANTS else "^")


def _milliseconds(value: float) -> str:
    """Return `0.0123 ms`, with three significant digits."""
    digits = max(2 - math.floor(math.log10(value)), 0) if value > 0 else 0
    return f"{value:.{min(digits, 6)}f} ms"


def _per_second(value: float, unit: str) -> str:
    for prefix, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}/s"
    return f"{value:.3g} {unit}/s"


def _bytes_per_second(value: float, position: float | None = None) -> str:
    return _per_second(value, "B")


def _flops_per_second(value: float, position: float | None = None) -> str:
    return _per_second(value, "FLOP")


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue()
