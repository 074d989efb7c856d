"""Estimate the cost of operations, and the bound on a chip's roofline: its arithmetic or its memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fx_lsp.features.wording.text import format_bytes
from fx_lsp.model import Node

_DTYPE = re.compile(r"\b((?:bf|[fiuc])\d+)\w*\[")
_UNITS = ("FLOP", "KFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")


@dataclass(frozen=True)
class Peak:
    """Hold the peak rates of a chip: bytes per second, and floating-point operations per second by dtype."""

    name: str
    bytes: float
    flops: Mapping[str, float]


PEAKS = {
    "cuda:80": Peak("A100", 2.039e12, {"f16": 312e12, "bf16": 312e12, "f32": 19.5e12, "f64": 19.5e12}),
    "cuda:90": Peak("H100", 3.35e12, {"f16": 989e12, "bf16": 989e12, "f8": 1979e12, "f32": 67e12, "f64": 67e12}),
    "cuda:100": Peak("B200", 8e12, {"f16": 2250e12, "bf16": 2250e12, "f8": 4500e12, "f32": 80e12, "f64": 40e12}),
    "hip:gfx90a": Peak("MI250X", 3.28e12, {"f16": 383e12, "bf16": 383e12, "f32": 95.7e12, "f64": 95.7e12}),
    "hip:gfx942": Peak(
        "MI300X", 5.3e12, {"f16": 1307e12, "bf16": 1307e12, "f8": 2615e12, "f32": 163e12, "f64": 163e12}
    ),
}
"""Peak rates by chip, as the setting `gpu` names them: dense products without sparsity, from the makers' data
sheets.
"""


@dataclass(frozen=True)
class GraphCost:
    """Hold floating-point operations, the bytes that operations read and write, as if none were fused, and those that a
    process sends in collectives.
    """

    flops: int
    moved_bytes: int
    sent_bytes: int = 0


def cost_of(nodes: Iterable[Node]) -> GraphCost:
    """Return the total cost of nodes."""
    costs = [(node.flops, node.moved_bytes, node.sent_bytes) for node in nodes]
    return GraphCost(*(sum(column) for column in zip(*costs, strict=True))) if costs else GraphCost(0, 0)


def cost_text(cost: GraphCost) -> str:
    """Return a cost as text: `1.2 GFLOP, 36 KiB read and written, 6 KiB sent by each process`; "" for views alone."""
    parts = [format_flops(cost.flops)] if cost.flops else []
    moved = [f"{format_bytes(cost.moved_bytes)} read and written"] if cost.moved_bytes else []
    sent = [f"{format_bytes(cost.sent_bytes)} sent by each process"] if cost.sent_bytes else []
    return ", ".join([*parts, *moved, *sent])


def bound_text(nodes: Iterable[Node], chip: str) -> str:
    """Return the bound of the largest product among nodes on a chip: `105 FLOP per byte: bound by memory on an H100
    (below 295)`. "" if nothing is multiplied, or if the chip is unknown.
    """
    products = [node for node in nodes if node.flops and node.moved_bytes]
    if not products or chip not in PEAKS:
        return ""
    largest, peak = max(products, key=lambda node: node.flops), PEAKS[chip]
    dtype = _DTYPE.search(largest.spec or "")
    fastest = peak.flops.get(dtype[1]) if dtype is not None else None
    if fastest is None:
        return ""
    intensity, balance = largest.flops / largest.moved_bytes, fastest / peak.bytes
    side = "memory" if intensity < balance else "arithmetic"
    than = "below" if intensity < balance else "above"
    return f"{intensity:,.3g} FLOP per byte: bound by {side} on {_article(peak.name)} ({than} {balance:,.0f})"


def format_flops(flops: float) -> str:
    """Return a number of floating-point operations in decimal units: `512 FLOP`, `1.2 GFLOP`."""
    value, power = float(flops), 0
    while value >= 999.5 and power < len(_UNITS) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {_UNITS[power]}"


def _article(name: str) -> str:
    return f"an {name}" if name[0] in "AHM" else f"a {name}"
