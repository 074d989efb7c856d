"""How a kernel goes through its axes: which of them a program holds at once, which it loops over, which are its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import sympy

from fx_lsp.codegen.graph.reductions import PROGRAMS
from fx_lsp.codegen.ir.index import ONE, ZERO, Index, affine_parts, coefficient, count, hint, power_of_two
from fx_lsp.codegen.ir.tile import AT_ONCE, WHOLE, Config, Dim, Role, Tile
from fx_lsp.codegen.ir.values import Coordinate, Guard, Load, Reduction, Scan, Store, Test, Value, values_of
from fx_lsp.codegen.lower.builder import Domain

REGISTERS = 65536
"""How many registers a multiprocessor has for the threads of a program."""

HELD = 128
"""How many of a thread's registers may be taken by what a kernel holds all the time, of 255."""

OTHERS = 32
"""How many more it needs."""

MOST_ELEMENTS = 4
"""How many elements each thread works on, at most, where a kernel holds much of each."""


@dataclass
class _Axes:
    """Axes with their sizes, while they are merged."""

    sizes: dict[sympy.Symbol, Index]
    merged: dict[sympy.Symbol, Index] = field(default_factory=dict[sympy.Symbol, Index])


def tile_of(domain: Domain, stores: Sequence[Store], hints: Mapping[str, int]) -> Tile:
    """A tile for a kernel that writes `stores`; `hints` are what symbolic sizes were when the graph was made."""
    values, used = list(values_of(v for s in stores for v in s.values)), varying(stores)
    overs = list(dict.fromkeys(v.over for v in values if isinstance(v, (Reduction, Scan))))
    axes = _Axes({a: s for a, s in zip(domain.axes, domain.sizes, strict=True) if a in used})
    indices = _indices(values, stores)
    _merge(axes, indices, overs)
    overs = list(dict.fromkeys(tuple(a for a in axes.sizes if a in over) for over in overs))
    weights = _weights(values, stores, axes, hints)
    if not overs:
        return _pointwise(axes, weights, hints)
    if len(overs) == 1:
        return _reducing(axes, overs[0], weights, hints, indices)
    return _norm_backward(axes, overs)


def spread(tile: Tile, held: int) -> Tile:
    """The tile with enough warps for each element of it to have `held` values in registers at once."""
    each = max(1, min(HELD // max(1, held), MOST_ELEMENTS))
    configs: dict[Config, None] = {}
    for config in tile.configs:
        warps = max(config.warps, power_of_two(_elements(tile, config) // (32 * each)))
        if 32 * warps * min(held * each + OTHERS, 255) <= REGISTERS:
            configs[replace(config, warps=warps)] = None
    return replace(tile, configs=tuple(configs)) if configs else tile


def staged(tile: Tile) -> Tile:
    """The tile whose configurations also say how many rounds of a loop are on their way at once, `STAGES`: the fewer,
    the more a thread loads in each."""
    configs = tuple(replace(c, blocks=(*c.blocks, ("STAGES", _stages(tile, c)))) for c in tile.configs)
    return replace(tile, configs=configs)


def _stages(tile: Tile, config: Config) -> int:
    return 2 if _elements(tile, config) // (32 * config.warps) >= 8 else 4


def _elements(tile: Tile, config: Config) -> int:
    """How many elements of a tile a program works on at once."""
    blocks = dict(config.blocks)
    return math.prod(blocks.get(d.block_name, d.block) for d in tile.dims)


def at_once(tile: Tile) -> Tile | None:
    """The tile with all that it would go through in steps held at once; None where that is too much."""
    loop = next((d for d in tile.dims if d.role == "loop"), None)
    if loop is None:
        return tile
    if not loop.size.is_Integer or loop.size > WHOLE:
        return None
    held = replace(loop, block=power_of_two(int(loop.size)), role="whole")
    if held.block_name == "ROWS":
        held = replace(held, variable="rows")
    dims = [held if d is loop else d for d in tile.dims]
    room = AT_ONCE // math.prod(d.block for d in dims if d.role == "whole")
    if room < 1:
        return None
    configs: dict[Config, None] = {}
    for config in tile.configs:
        blocks = tuple((name, min(block, room)) for name, block in config.blocks if name != loop.block_name)
        elements = math.prod(d.block for d in dims if d.role == "whole") * math.prod(b for _, b in blocks)
        configs[Config(blocks, max(1, min(16, elements // 512)))] = None
    first = dict(next(iter(configs)).blocks)
    dims = [replace(d, block=first.get(d.block_name, d.block)) for d in dims]
    return Tile(tuple(dims), tile.merged, tuple(configs))


def is_crossed(tile: Tile, stores: Sequence[Store]) -> bool:
    """Whether something that is reduced at once needs what is reduced step by step."""
    stepped = {a for d in tile.dims if d.role == "loop" for a in d.axes}
    late: set[int] = set()
    for value in values_of(v for s in stores for v in s.values):
        over = set(value.over) if isinstance(value, Reduction) else None
        if any(id(i) in late for i in value.inputs):
            if over is not None and not over & stepped:
                return True
            late.add(id(value))
        elif over is not None and over & stepped:
            late.add(id(value))
    return False


def varying(stores: Sequence[Store]) -> set[sympy.Symbol]:
    """The axes along which something of what a kernel computes varies."""
    values = values_of(v for s in stores for v in s.values)
    return {a for v in values for a in v.axes} | {a for s in stores for a in s.axes}


def _indices(values: Iterable[Value], stores: Iterable[Store]) -> list[Index]:
    found: list[Index] = [s.index for s in stores]
    for value in values:
        if isinstance(value, (Load, Coordinate)):
            found.append(value.index)
        if isinstance(value, (Load, Test)):
            found.extend(_guard_indices(value.guard))
    return [part for index in found for part in affine_parts(index)]


def merged_axes(
    sizes: Mapping[sympy.Symbol, Index],
    values: Iterable[Value],
    stores: Sequence[Store],
    apart: Sequence[tuple[sympy.Symbol, ...]],
) -> tuple[dict[sympy.Symbol, Index], Mapping[sympy.Symbol, Index]]:
    """Axes of which neighbours are one where every index treats them so, but not across the bounds of `apart`.

    Returns what is left of them, and what stands for those that are gone.
    """
    axes = _Axes(dict(sizes))
    _merge(axes, _indices(values, stores), list(apart))
    return axes.sizes, axes.merged


def _guard_indices(guard: Guard) -> list[Index]:
    return [c.left - c.right for c in guard]


def _merge(axes: _Axes, indices: list[Index], overs: list[tuple[sympy.Symbol, ...]]) -> None:
    """Make one axis of neighbours that every index treats as one."""
    order = list(axes.sizes)
    position = len(order) - 2
    while position >= 0:
        outer, inner = order[position], order[position + 1]
        if all((outer in over) == (inner in over) for over in overs) and all(
            _as_one(index, outer, inner, axes.sizes[inner]) for index in indices
        ):
            axes.merged[outer] = ZERO
            axes.sizes[inner] = axes.sizes[outer] * axes.sizes[inner]
            indices[:] = [i.xreplace({outer: ZERO}) for i in indices]
            del axes.sizes[outer]
            order.remove(outer)
        position -= 1


def _as_one(index: Index, outer: sympy.Symbol, inner: sympy.Symbol, size: Index) -> bool:
    if outer not in index.free_symbols and inner not in index.free_symbols:
        return True
    a, b = coefficient(index, outer), coefficient(index, inner)
    return a is not None and b is not None and sympy.expand(a - b * size) == 0


def _weights(
    values: Iterable[Value], stores: Iterable[Store], axes: _Axes, hints: Mapping[str, int]
) -> dict[sympy.Symbol, int]:
    """For each axis, how many bytes of thousand elements that the kernel runs over lie next to each other along it."""
    weights = dict.fromkeys(axes.sizes, 0)
    accesses = [(v.index, v.buffer, v.axes) for v in values if isinstance(v, Load)]
    accesses += [(s.index, s.buffer, s.axes) for s in stores]
    for index, buffer, over in accesses:
        moved = index.xreplace(axes.merged)
        absent = [a for a in axes.sizes if a not in over and a not in moved.free_symbols]
        again = math.prod(hint(axes.sizes[a], hints) for a in absent)
        for axis in weights:
            if coefficient(moved, axis) == ONE:
                weights[axis] += buffer.dtype.itemsize * 1000 // max(again, 1)
    return weights


def _dim(axes: _Axes, chosen: Sequence[sympy.Symbol], role: Role, block: int, kind: Literal["x", "y", "z"]) -> Dim:
    sizes = tuple(axes.sizes[a] for a in chosen)
    variable = {"x": "cols", "y": "rows" if block > 1 else "row", "z": "outer"}[kind]
    names = {"x": ("N", "BLOCK"), "y": ("M", "ROWS"), "z": ("K", "")}[kind]
    return Dim(tuple(chosen), sizes, role, block, variable, *names)


def _pointwise(axes: _Axes, weights: dict[sympy.Symbol, int], hints: Mapping[str, int]) -> Tile:
    order = list(axes.sizes)
    if not order:
        return Tile((), axes.merged, (Config((), 1),))
    contiguous = max(reversed(order), key=lambda a: weights[a])
    width = hint(axes.sizes[contiguous], hints)
    if len(order) == 1 or width < 32:
        configs = tuple(Config((("BLOCK", b),), w) for b, w in ((1024, 4), (2048, 8), (512, 4), (4096, 8)))
        return Tile((_dim(axes, order, "grid", configs[0].blocks[0][1], "x"),), axes.merged, configs)
    rest = [a for a in order if a is not contiguous]
    tall = [a for a in rest if weights[a] >= 1000]
    block = min(power_of_two(width), 1024)
    if tall:
        others = [a for a in rest if a not in tall[-1:]]
        pairs = ((32, 64, 4), (64, 64, 8), (16, 128, 4), (64, 32, 4))
        configs = tuple(Config((("ROWS", r), ("BLOCK", c)), w) for r, c, w in pairs)
        dims = [_dim(axes, tall[-1:], "grid", 32, "y"), _dim(axes, [contiguous], "grid", 64, "x")]
        if others:
            dims.insert(0, _dim(axes, others, "grid", 1, "z"))
        return Tile(tuple(dims), axes.merged, configs)
    sizes = dict.fromkeys(
        ((max(1, 1024 // block), block), (max(1, 4096 // block), block), (max(1, 2048 // block), block))
    )
    sizes[(8, min(power_of_two(width), 512))] = None
    configs = tuple(
        Config((("ROWS", r), ("BLOCK", c)), 4 if r * c <= 2048 else 8) for r, c in sizes if r > 1 or len(sizes) < 3
    )
    first = dict(configs[0].blocks)
    return Tile(
        (
            _dim(axes, rest, "grid", first["ROWS"] if first["ROWS"] > 1 else 2, "y"),
            _dim(axes, [contiguous], "grid", first["BLOCK"], "x"),
        ),
        axes.merged,
        configs,
    )


def _reducing(
    axes: _Axes,
    over: tuple[sympy.Symbol, ...],
    weights: dict[sympy.Symbol, int],
    hints: Mapping[str, int],
    indices: Sequence[Index],
) -> Tile:
    kept = [a for a in axes.sizes if a not in over]
    contiguous = max(reversed(list(axes.sizes)), key=lambda a: weights[a])
    total = count(axes.sizes[a] for a in over)
    if contiguous in over or not kept:
        return _rows(axes, kept, over, total, hints)
    columns = _neighbours(axes, kept, contiguous, indices)
    others = [a for a in kept if a not in columns]
    width, depth = hint(count(axes.sizes[a] for a in columns), hints), hint(total, hints)
    configs = _summing(width, hint(count(axes.sizes[a] for a in others), hints), depth)
    rows, block = (number for _, number in configs[0].blocks)
    dims = [_dim(axes, over, "loop", rows, "y"), _dim(axes, columns, "grid", block, "x")]
    if others:
        dims.insert(0, _dim(axes, others, "grid", 1, "z"))
    return Tile(tuple(dims), axes.merged, configs)


def _summing(width: int, times: int, depth: int) -> tuple[Config, ...]:
    """Blocks for sums of `depth` rows, `times` as often: wide ones where there are enough of them, for whole pages of
    memory, narrow ones where there are not enough for all of a GPU."""
    tallest = max(2, power_of_two(depth))
    block = min(power_of_two(width), 128)
    if width * times >= PROGRAMS * 512 and width >= 2048:
        sizes = ((2, 1024, 4), (2, 2048, 4), (4, 1024, 8), (8, 256, 4), (16, 128, 4))
    elif width * times <= PROGRAMS * 16 and block == 128:
        sizes = ((32, 64, 4), (64, 32, 4), (128, 32, 4), (128, 16, 4), (32, 128, 8))
    else:
        tallest = min(tallest, 4096 // block)
        half, quarter = max(2, tallest // 2), max(2, tallest // 4)
        pairs = ((tallest, block), (half, block), (tallest, max(16, block // 2)), (quarter, block))
        sizes = (*((r, c, 4 if r * c <= 2048 else 8) for r, c in pairs), (half, block, 8))
    choices = dict.fromkeys((min(r, tallest), c, w) for r, c, w in sizes)
    return tuple(Config((("ROWS", r), ("BLOCK", c)), w) for r, c, w in choices)


def _neighbours(
    axes: _Axes, kept: Sequence[sympy.Symbol], last: sympy.Symbol, indices: Sequence[Index]
) -> list[sympy.Symbol]:
    """`last`, and the axes outside of it whose elements follow on its own wherever something depends on them."""
    found = [last]
    for axis in reversed(kept[: kept.index(last)]):
        behind = count(axes.sizes[a] for a in found)
        if not all(_follows(index, axis, last, behind) for index in indices):
            break
        found.insert(0, axis)
    return found


def _follows(index: Index, axis: sympy.Symbol, last: sympy.Symbol, behind: Index) -> bool:
    along = coefficient(index, last)
    return axis not in index.free_symbols or (along == 1 and coefficient(index, axis) == behind)


def _rows(
    axes: _Axes,
    kept: list[sympy.Symbol],
    over: Sequence[sympy.Symbol],
    total: Index,
    hints: Mapping[str, int],
) -> Tile:
    """Programs that reduce along contiguous elements: whole rows where they fit."""
    dims: list[Dim] = []
    if total.is_Integer and int(total) <= WHOLE:
        block = power_of_two(int(total))
        rows = max(1, min(1024 // block, power_of_two(hint(count(axes.sizes[a] for a in kept), hints)))) if kept else 1
        warps = max(1, min(16, block * rows // 512))
        choices = dict.fromkeys(max(1, min(32, w)) for w in (warps, warps * 2, max(1, warps // 2)))
        fixed = (("ROWS", rows),) if rows > 1 else ()
        configs = tuple(Config(fixed, w) for w in choices)
        if kept:
            dims.append(_dim(axes, kept, "grid", rows, "y"))
        return Tile((*dims, _dim(axes, over, "whole", block, "x")), axes.merged, configs)
    configs = tuple(Config((("BLOCK", b),), w) for b, w in ((4096, 8), (8192, 16), (8192, 8), (16384, 16), (2048, 4)))
    if kept:
        dims.append(_dim(axes, kept, "grid", 1, "y"))
    return Tile((*dims, _dim(axes, over, "loop", 4096, "x")), axes.merged, configs)


def _norm_backward(axes: _Axes, overs: list[tuple[sympy.Symbol, ...]]) -> Tile:
    """Rows that are reduced one after the other, while sums over the rows build up."""
    last = list(axes.sizes)[-1]
    inner = next(o for o in overs if last in o)
    outer = next(o for o in overs if o is not inner)
    rest = [a for a in axes.sizes if a not in inner and a not in outer]
    block = power_of_two(int(count(axes.sizes[a] for a in inner)))
    warps = max(1, min(16, block // 512))
    configs = tuple(Config((), w) for w in dict.fromkeys((warps, min(32, warps * 2), max(1, warps // 2))))
    rows = max(1, 1024 // block)
    dims = [_dim(axes, outer, "loop", rows, "y"), _dim(axes, inner, "whole", block, "x")]
    if rest:
        dims.insert(0, _dim(axes, rest, "grid", 1, "z"))
    return Tile(tuple(dims), axes.merged, configs)
