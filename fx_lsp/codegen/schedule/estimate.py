"""Estimate how long ways to compute the same take on a GPU, from the work of their launches, and choose one.

The work is the bytes that a kernel moves, its memory requests, operations, programs and loop iterations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import sympy

from fx_lsp.codegen.ir.index import Coords, Index, coefficient, size_hint
from fx_lsp.codegen.ir.kernel import SECTOR, KernelWork, ProductKind
from fx_lsp.codegen.ir.ops import Op
from fx_lsp.codegen.ir.tile import Config, Tile
from fx_lsp.codegen.ir.values import Axes, Buffer, Compute, Load, Reduction, Scan, Store, values_of

MICROSECOND = 1e-6
BUSY_WARPS, RESIDENT_WARPS = 8, 32
"""The warps of a multiprocessor that saturate the memory, and those that it holds with an average number of registers.
"""


@dataclass(frozen=True)
class Rates:
    """Hold what `benchmarks/rates.py` measures on a GPU, in seconds and per second.

    `launch` is a kernel without work in a CUDA graph; `bytes` pass between memory and cache; `requests` are for single
    elements, four apart; `operations` are additions; an `iteration` of a loop waits for memory; `products` are
    operations of matrix products, by who computes them.
    """

    card: str
    multiprocessors: int
    launch: float
    bytes: float
    requests: float
    operations: float
    iteration: float
    products: dict[ProductKind, float] = field(default_factory=dict[ProductKind, float])


H200 = Rates(
    card="H200",
    multiprocessors=132,
    launch=1.4 * MICROSECOND,
    bytes=4.2e12,
    requests=0.37e12,
    operations=29e12,
    iteration=0.4 * MICROSECOND,
    products={"f32": 12e12, "half": 530e12, "half, TMA": 650e12, "library f32": 35e12, "library half": 700e12},
)
"""The rates of an H200. Only ratios of estimates are used, and other recent cards have similar ratios."""


@dataclass(frozen=True)
class Way:
    """One way to compute something: the work of its launches, and what it has to save to be chosen over another way:
    `host` seconds, which its call takes longer there, and the factor `margin`, if a smaller one is within the error.
    """

    launches: tuple[KernelWork, ...]
    host: float = 0.0
    margin: float = 1.0


def region(*launches: KernelWork) -> Way:
    """Return the way of a function that Inductor compiles, with the seconds that the host takes to call it."""
    return Way(launches, 10 * MICROSECOND, 1.5)


def faster(ours: Way, other: Way, rates: Rates = H200) -> str | None:
    """Return why another way is faster than ours by what it has to save; None if it is not."""
    mine, theirs = (sum(seconds(work, rates) for work in way.launches) for way in (ours, other))
    if mine <= other.margin * theirs or mine - theirs < other.host:
        return None
    times = (f"{time / MICROSECOND:.0f} µs" for time in (mine, theirs))
    return f"would take {' instead of '.join(times)}, by an estimate for an {rates.card}"


def seconds(work: KernelWork, rates: Rates = H200) -> float:
    """Return the estimated seconds of a launch."""
    if work.product is not None:
        idle = max(1.0, rates.multiprocessors / work.programs)
        return rates.launch + work.operations / rates.products[work.product] * idle
    warps = work.programs * work.warps
    idle = max(1.0, rates.multiprocessors * BUSY_WARPS / warps) if warps else 1.0
    waves = max(1.0, warps / (rates.multiprocessors * RESIDENT_WARPS))
    waiting = work.iterations * rates.iteration * waves if work.iterations > 1 else 0.0
    throughput = max(work.moved / rates.bytes, work.requests / rates.requests, work.operations / rates.operations)
    return rates.launch + max(throughput * idle, waiting)


def ideal(work: KernelWork) -> KernelWork:
    """Return the work of a kernel that reads neighbouring elements, with enough programs. A kernel that computes in
    order is its own ideal.
    """
    requests = work.moved // SECTOR
    return work if work.sequential else replace(work, requests=requests, programs=0, warps=0, iterations=1)


SPECIAL = 12
"""The cost of a division or a special function, such as a logarithm, in additions."""


def work_of(
    stores: Sequence[Store], tile: Tile, sizes: Mapping[sympy.Symbol, Index], hints: Mapping[str, int]
) -> KernelWork:
    """Return the work of a kernel that writes `stores`, over axes with these sizes."""
    numbers = {axis: size_hint(size, hints) for axis, size in sizes.items()}
    values = list(values_of(v for store in stores for v in store.values))
    accesses = {(v.buffer.name, v.index): (v.buffer, v.index, v.axes) for v in values if isinstance(v, Load)}
    elements: dict[str, tuple[Buffer, int]] = {}
    requests = 0
    for buffer, index, axes in [*accesses.values(), *((s.buffer, s.index, s.axes) for s in stores)]:
        many = _count(axes, numbers)
        elements[buffer.name] = (buffer, elements.get(buffer.name, (buffer, 0))[1] + many)
        step = buffer.dtype.itemsize if _is_contiguous(index, tile) else SECTOR
        requests += math.ceil(many * step / SECTOR)
    moved = sum(min(many, _elements(b.shape, hints)) * b.dtype.itemsize for b, many in elements.values())
    config = tile.configs[0]
    return KernelWork(
        moved,
        requests,
        sum(_operations(v.op) * _count(v.axes, numbers) for v in values if isinstance(v, Compute))
        + sum(_count(v.args[0].axes, numbers) for v in values if isinstance(v, Reduction)),
        math.prod(_blocks(tile, config, "grid", hints)),
        config.warps,
        math.prod(_blocks(tile, config, "loop", hints)),
        any(isinstance(v, Scan) for v in values),
    )


def _count(axes: Axes, numbers: Mapping[sympy.Symbol, int]) -> int:
    return math.prod(numbers.get(axis, 1) for axis in axes)


def _elements(shape: Coords, hints: Mapping[str, int]) -> int:
    return math.prod(size_hint(size, hints) for size in shape)


def _operations(op: Op) -> int:
    """Return the cost of an operation in additions: one for a sum, a product, a comparison, a cast or a choice."""
    return 1 if op.is_exact or op.is_cast or not {"(", "/"}.intersection(op.text) else SPECIAL


def _blocks(tile: Tile, config: Config, role: str, hints: Mapping[str, int]) -> Iterable[int]:
    """Yield the number of blocks along each dimension with a role."""
    chosen = dict(config.blocks)
    for dim in tile.dims:
        if dim.role == role:
            yield math.ceil(size_hint(dim.size, hints) / chosen.get(dim.block_name, dim.block))


def _is_contiguous(index: Index, tile: Tile) -> bool:
    """Return True if elements next to each other in a tile are so in memory, or are the same element."""
    moved = tile.index(index)
    tiled = [axis for dim in tile.dims if dim.block > 1 for axis in dim.axes]
    slopes = [coefficient(moved, axis) for axis in tiled if axis in moved.free_symbols]
    return not slopes or any(slope == 1 for slope in slopes)
