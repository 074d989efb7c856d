"""Choose for each axis of a kernel whether a program holds it at once, loops over it, or has a part of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import sympy

from fx_lsp.codegen.graph.reductions import TARGET_PROGRAMS
from fx_lsp.codegen.ir.index import ONE, ZERO, Index, affine_parts, coefficient, count, power_of_two, size_hint
from fx_lsp.codegen.ir.tile import MAX_ROW_ELEMENTS, MAX_TILE_ELEMENTS, Config, Dim, DimRole, Tile
from fx_lsp.codegen.ir.values import Coordinate, Guard, Load, Reduction, Scan, Store, Test, Value, values_of
from fx_lsp.codegen.lower.builder import Domain

MULTIPROCESSOR_REGISTERS = 65536
"""The number of registers of a multiprocessor for the threads of a program."""

MAX_HELD_REGISTERS = 128
"""The largest number of registers of a thread, of 255, for values that a kernel holds all the time."""

OTHER_REGISTERS = 32
"""The number of registers that a thread needs for other values."""

MAX_ELEMENTS_PER_THREAD = 4
"""The largest number of elements for each thread in a kernel that holds many values of each."""

MIN_ELEMENTS, MAX_ELEMENTS = 32, 1024
"""The fewest and the most elements of a program of an element-wise kernel, before autotuning."""

MIN_WIDTH, MIN_COLUMNS = 32, 8
"""The fewest neighbouring elements that are a dimension of a tile, of element-wise kernels and of column sums. With
fewer, the dimension has the other axes, too.
"""

LONG_ROWS = ((4096, 8), (8192, 16), (8192, 8), (16384, 16), (2048, 4))
"""The elements at a time, and the warps, of a program that reads a row in a loop."""


OPEN_DEPTH = 128
"""The least number of rows for which column sums are tiled if the number is known only at launch: it may be large."""


@dataclass
class _MergedAxes:
    """Axes with their sizes during merging."""

    sizes: dict[sympy.Symbol, Index]
    merged: dict[sympy.Symbol, Index] = field(default_factory=dict[sympy.Symbol, Index])


def tile_of(domain: Domain, stores: Sequence[Store], hints: Mapping[str, int], iterates: bool = False) -> Tile:
    """Return the tile of a kernel that writes `stores`. `hints` are the values of symbolic sizes at capture.

    If a kernel `iterates` over steps, its programs are small enough to keep a GPU busy.
    """
    values, used = list(values_of(v for s in stores for v in s.values)), varying_axes(stores)
    overs = list(dict.fromkeys(v.over for v in values if isinstance(v, (Reduction, Scan))))
    axes = _MergedAxes({a: s for a, s in zip(domain.axes, domain.sizes, strict=True) if a in used})
    indices = _indices(values, stores)
    _merge_neighbours(axes, indices, overs)
    overs = list(dict.fromkeys(tuple(a for a in axes.sizes if a in over) for over in overs))
    weights = _contiguous_bytes(values, stores, axes, hints)
    if not overs:
        total = size_hint(count(axes.sizes.values()), hints)
        elements = power_of_two(total // TARGET_PROGRAMS) if iterates else MAX_ELEMENTS
        return _pointwise_tile(axes, weights, hints, elements)
    if len(overs) == 1:
        return _reduction_tile(axes, overs[0], weights, hints, indices)
    return _row_and_column_tile(axes, overs)


def with_warps_for(tile: Tile, live_values: int) -> Tile:
    """Return the tile with enough warps to hold `live_values` values of each element in registers."""
    each = max(1, min(MAX_HELD_REGISTERS // max(1, live_values), MAX_ELEMENTS_PER_THREAD))
    configs: dict[Config, None] = {}
    for config in tile.configs:
        warps = max(config.warps, power_of_two(_elements_at_once(tile, config) // (32 * each)))
        if 32 * warps * min(live_values * each + OTHER_REGISTERS, 255) <= MULTIPROCESSOR_REGISTERS:
            configs[replace(config, warps=warps)] = None
    return replace(tile, configs=tuple(configs)) if configs else tile


def with_stages(tile: Tile) -> Tile:
    """Return the tile with `STAGES` in each configuration: the number of loop iterations in flight.

    The more a thread loads in an iteration, the fewer stages.
    """
    configs = tuple(replace(c, blocks=(*c.blocks, ("STAGES", _stages_for(tile, c)))) for c in tile.configs)
    return replace(tile, configs=configs)


def _stages_for(tile: Tile, config: Config) -> int:
    return 2 if _elements_at_once(tile, config) // (32 * config.warps) >= 8 else 4


def _elements_at_once(tile: Tile, config: Config) -> int:
    """Return the number of elements of a tile that a program processes at once."""
    blocks = dict(config.blocks)
    return math.prod(blocks.get(d.block_name, d.block) for d in tile.dims)


def without_loop(tile: Tile) -> Tile | None:
    """Return the tile without its loop, all looped elements held at once. Returns None if they are too many."""
    loop = next((d for d in tile.dims if d.role == "loop"), None)
    if loop is None:
        return tile
    if not loop.size.is_Integer or loop.size > MAX_ROW_ELEMENTS:
        return None
    whole_dim = replace(loop, block=power_of_two(int(loop.size)), role="whole")
    if whole_dim.block_name == "ROWS":
        whole_dim = replace(whole_dim, variable="rows")
    dims = [whole_dim if d is loop else d for d in tile.dims]
    room = MAX_TILE_ELEMENTS // math.prod(d.block for d in dims if d.role == "whole")
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


def crosses_reductions(tile: Tile, stores: Sequence[Store]) -> bool:
    """Return True if a reduction that runs at once depends on one that runs in the loop."""
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


def varying_axes(stores: Sequence[Store]) -> set[sympy.Symbol]:
    """Return the axes along which a value or a store of a kernel varies."""
    values = values_of(v for s in stores for v in s.values)
    return {a for v in values for a in v.axes} | {a for s in stores for a in s.axes}


def _indices(values: Iterable[Value], stores: Iterable[Store]) -> list[Index]:
    indices: list[Index] = [s.index for s in stores]
    for value in values:
        if isinstance(value, (Load, Coordinate)):
            indices.append(value.index)
        if isinstance(value, (Load, Test)):
            indices.extend(_guard_indices(value.guard))
    return [part for index in indices for part in affine_parts(index)]


def merge_axes(
    sizes: Mapping[sympy.Symbol, Index],
    values: Iterable[Value],
    stores: Sequence[Store],
    apart: Sequence[tuple[sympy.Symbol, ...]],
) -> tuple[dict[sympy.Symbol, Index], Mapping[sympy.Symbol, Index]]:
    """Return axes with neighbours merged if every index treats them as one, but not across the boundaries of `apart`.

    Returns the sizes of the remaining axes, and the expressions that replace the merged ones.
    """
    axes = _MergedAxes(dict(sizes))
    _merge_neighbours(axes, _indices(values, stores), list(apart))
    return axes.sizes, axes.merged


def _guard_indices(guard: Guard) -> list[Index]:
    return [c.left - c.right for c in guard]


def _merge_neighbours(axes: _MergedAxes, indices: list[Index], overs: list[tuple[sympy.Symbol, ...]]) -> None:
    """Merge neighbouring axes that every index treats as one."""
    order = list(axes.sizes)
    position = len(order) - 2
    while position >= 0:
        outer, inner = order[position], order[position + 1]
        if all((outer in over) == (inner in over) for over in overs) and all(
            _can_merge(index, outer, inner, axes.sizes[inner]) for index in indices
        ):
            axes.merged[outer] = ZERO
            axes.sizes[inner] = axes.sizes[outer] * axes.sizes[inner]
            indices[:] = [i.xreplace({outer: ZERO}) for i in indices]
            del axes.sizes[outer]
            order.remove(outer)
        position -= 1


def _can_merge(index: Index, outer: sympy.Symbol, inner: sympy.Symbol, size: Index) -> bool:
    if outer not in index.free_symbols and inner not in index.free_symbols:
        return True
    a, b = coefficient(index, outer), coefficient(index, inner)
    return a is not None and b is not None and sympy.expand(a - b * size) == 0


def _contiguous_bytes(
    values: Iterable[Value], stores: Iterable[Store], axes: _MergedAxes, hints: Mapping[str, int]
) -> dict[sympy.Symbol, int]:
    """Return for each axis the number of contiguous bytes along it for every thousand elements of the kernel."""
    weights = dict.fromkeys(axes.sizes, 0)
    accesses = [(v.index, v.buffer, v.axes) for v in values if isinstance(v, Load)]
    accesses += [(s.index, s.buffer, s.axes) for s in stores]
    for index, buffer, over in accesses:
        moved = index.xreplace(axes.merged)
        absent = [a for a in axes.sizes if a not in over and a not in moved.free_symbols]
        again = math.prod(size_hint(axes.sizes[a], hints) for a in absent)
        for axis in weights:
            if coefficient(moved, axis) == ONE:
                weights[axis] += buffer.dtype.itemsize * 1000 // max(again, 1)
    return weights


def _dim(
    axes: _MergedAxes, chosen: Sequence[sympy.Symbol], role: DimRole, block: int, kind: Literal["x", "y", "z"]
) -> Dim:
    sizes = tuple(axes.sizes[a] for a in chosen)
    variable = {"x": "cols", "y": "rows" if block > 1 else "row", "z": "outer"}[kind]
    names = {"x": ("N", "BLOCK"), "y": ("M", "ROWS"), "z": ("K", "")}[kind]
    return Dim(tuple(chosen), sizes, role, block, variable, *names)


def _pointwise_tile(
    axes: _MergedAxes, weights: dict[sympy.Symbol, int], hints: Mapping[str, int], elements: int
) -> Tile:
    """Return the tile of an element-wise kernel with about so many `elements` in a program."""
    order = list(axes.sizes)
    if not order:
        return Tile((), axes.merged, (Config((), 1),))
    contiguous = max(reversed(order), key=lambda a: weights[a])
    width, best = size_hint(axes.sizes[contiguous], hints), max(MIN_ELEMENTS, min(MAX_ELEMENTS, elements))
    if len(order) == 1 or width < MIN_WIDTH:
        numbers = (best, 2 * best, max(MIN_ELEMENTS, best // 2), 4 * best)
        configs = _configs([(("BLOCK", e),) for e in numbers], 256)
        return Tile((_dim(axes, order, "grid", configs[0].blocks[0][1], "x"),), axes.merged, configs)
    rest = [a for a in order if a is not contiguous]
    tall = [a for a in rest if weights[a] >= 1000]
    if tall:
        others = [a for a in rest if a not in tall[-1:]]
        pairs = ((32, 64, 4), (64, 64, 8), (16, 128, 4), (64, 32, 4))
        configs = tuple(Config((("ROWS", r), ("BLOCK", c)), w) for r, c, w in pairs)
        dims = [_dim(axes, tall[-1:], "grid", 32, "y"), _dim(axes, [contiguous], "grid", 64, "x")]
        if others:
            dims.insert(0, _dim(axes, others, "grid", 1, "z"))
        return Tile(tuple(dims), axes.merged, configs)
    row = min(power_of_two(width), MAX_ELEMENTS)
    blocks = [(max(1, e // row), min(row, e)) for e in (2 * best, 4 * best, best)]
    configs = _configs([(("ROWS", r), ("BLOCK", c)) for r, c in blocks], 512)
    first = dict(configs[0].blocks)
    dims = [_dim(axes, rest, "grid", max(2, first["ROWS"]), "y"), _dim(axes, [contiguous], "grid", first["BLOCK"], "x")]
    return Tile(tuple(dims), axes.merged, configs)


def _configs(blocks: Iterable[tuple[tuple[str, int], ...]], elements: int) -> tuple[Config, ...]:
    """Return configurations with these blocks, and a warp for each number of elements."""
    sizes = ((b, math.prod(size for _, size in b)) for b in blocks)
    return tuple(dict.fromkeys(Config(b, max(1, min(8, size // elements))) for b, size in sizes))


def _reduction_tile(
    axes: _MergedAxes,
    over: tuple[sympy.Symbol, ...],
    weights: dict[sympy.Symbol, int],
    hints: Mapping[str, int],
    indices: Sequence[Index],
) -> Tile:
    result_axes = [a for a in axes.sizes if a not in over]
    contiguous = max(reversed(list(axes.sizes)), key=lambda a: weights[a])
    total = count(axes.sizes[a] for a in over)
    if contiguous in over or not result_axes:
        return _row_tile(axes, result_axes, over, total, hints)
    columns = _neighbouring_axes(axes, result_axes, contiguous, indices)
    if size_hint(count(axes.sizes[a] for a in columns), hints) < MIN_COLUMNS:
        columns = result_axes
    others = [a for a in result_axes if a not in columns]
    width, depth = size_hint(count(axes.sizes[a] for a in columns), hints), size_hint(total, hints)
    depth = depth if total.is_Integer else max(depth, OPEN_DEPTH)
    configs = _column_sum_configs(width, size_hint(count(axes.sizes[a] for a in others), hints), depth)
    rows, block = (number for _, number in configs[0].blocks)
    dims = [_dim(axes, over, "loop", rows, "y"), _dim(axes, columns, "grid", block, "x")]
    if others:
        dims.insert(0, _dim(axes, others, "grid", 1, "z"))
    return Tile(tuple(dims), axes.merged, configs)


def _column_sum_configs(width: int, times: int, depth: int) -> tuple[Config, ...]:
    """Return configurations for column sums of `depth` rows and `width` columns, computed `times` times.

    Blocks are wide if there are enough columns, to read whole pages, and narrow if there are too few to fill a GPU.
    """
    tallest = max(2, power_of_two(depth))
    block = min(power_of_two(width), 128)
    if width * times >= TARGET_PROGRAMS * 512 and width >= 2048:
        sizes = ((2, 1024, 4), (2, 2048, 4), (4, 1024, 8), (8, 256, 4), (16, 128, 4))
    elif width * times <= TARGET_PROGRAMS * 16 and block == 128:
        sizes = ((32, 64, 4), (64, 32, 4), (128, 32, 4), (128, 16, 4), (32, 128, 8))
    else:
        tallest = min(tallest, 4096 // block)
        half, quarter = max(2, tallest // 2), max(2, tallest // 4)
        pairs = ((tallest, block), (half, block), (tallest, max(16, block // 2)), (quarter, block))
        sizes = (*((r, c, 4 if r * c <= 2048 else 8) for r, c in pairs), (half, block, 8))
    choices = dict.fromkeys((min(r, tallest), c, w) for r, c, w in sizes)
    return tuple(Config((("ROWS", r), ("BLOCK", c)), w) for r, c, w in choices)


def _neighbouring_axes(
    axes: _MergedAxes, result_axes: Sequence[sympy.Symbol], last: sympy.Symbol, indices: Sequence[Index]
) -> list[sympy.Symbol]:
    """Return `last` and the axes before it that are contiguous with it in every index."""
    neighbours = [last]
    for axis in reversed(result_axes[: result_axes.index(last)]):
        behind = count(axes.sizes[a] for a in neighbours)
        if not all(_follows(index, axis, last, behind) for index in indices):
            break
        neighbours.insert(0, axis)
    return neighbours


def _follows(index: Index, axis: sympy.Symbol, last: sympy.Symbol, behind: Index) -> bool:
    along = coefficient(index, last)
    return axis not in index.free_symbols or (along == 1 and coefficient(index, axis) == behind)


def _row_tile(
    axes: _MergedAxes,
    result_axes: list[sympy.Symbol],
    over: Sequence[sympy.Symbol],
    total: Index,
    hints: Mapping[str, int],
) -> Tile:
    """Return the tile of a reduction along contiguous elements. Whole rows are held at once if they fit."""
    dims: list[Dim] = []
    if total.is_Integer and int(total) <= MAX_ROW_ELEMENTS:
        block = power_of_two(int(total))
        rows = (
            max(1, min(1024 // block, power_of_two(size_hint(count(axes.sizes[a] for a in result_axes), hints))))
            if result_axes
            else 1
        )
        warps = max(1, min(16, block * rows // 512))
        choices = dict.fromkeys(max(1, min(32, w)) for w in (warps, warps * 2, max(1, warps // 2)))
        fixed = (("ROWS", rows),) if rows > 1 else ()
        configs = tuple(Config(fixed, w) for w in choices)
        if result_axes:
            dims.append(_dim(axes, result_axes, "grid", rows, "y"))
        return Tile((*dims, _dim(axes, over, "whole", block, "x")), axes.merged, configs)
    fitting = max(MIN_ELEMENTS, power_of_two(size_hint(total, hints)))
    blocks = dict.fromkeys((min(b, fitting), min(w, max(1, fitting // 256))) for b, w in LONG_ROWS)
    blocks |= {} if total.is_Integer else dict.fromkeys(LONG_ROWS[-1:])
    configs = tuple(Config((("BLOCK", b),), w) for b, w in blocks)
    if result_axes:
        dims.append(_dim(axes, result_axes, "grid", 1, "y"))
    return Tile((*dims, _dim(axes, over, "loop", configs[0].blocks[0][1], "x")), axes.merged, configs)


def _row_and_column_tile(axes: _MergedAxes, overs: list[tuple[sympy.Symbol, ...]]) -> Tile:
    """Return the tile of rows that are reduced one after the other while sums over the rows accumulate."""
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
