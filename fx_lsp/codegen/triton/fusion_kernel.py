"""Write a kernel that iterates over its axes in tiles."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping, Sequence

import sympy

from fx_lsp.codegen.ir.index import Index, coefficient, is_renamed, join_axes
from fx_lsp.codegen.ir.kernel import Kernel, KernelParameter, Naming, converted, offset_parameters, sizes_used
from fx_lsp.codegen.ir.statement import Statement, assign, expressions_in, names_used, without_definitions
from fx_lsp.codegen.ir.text import multiple_of
from fx_lsp.codegen.ir.tile import Dim, Tile
from fx_lsp.codegen.ir.values import Axes, Load, Reduction, Scan, Store, Value
from fx_lsp.codegen.triton.expressions import Computation, KernelWriter, TileStrategy
from fx_lsp.codegen.triton.reductions import (
    ReductionLoop,
    accumulators,
    loop_depths,
    online_pairs,
    reduce_at_once,
    scan_at_once,
    write_reductions,
)

PIPELINE_STAGES = 3
"""The largest number of loop iterations with loads in flight."""

MAX_PIPELINED_BYTES = 160 << 10
"""The largest number of bytes of shared memory for loads in flight: the limit of a block on an A100."""


def write_fusion_kernel(
    title: str, tile: Tile, stores: Sequence[Store], indirect: Mapping[sympy.Symbol, Value], naming: Naming
) -> Kernel:
    """Return the kernel that writes `stores`."""
    writer = KernelWriter(title, tile, Computation(stores, indirect), naming, ELEMENTS)
    write_header(writer)
    if writer.loop is not None:
        _write_phases(writer, writer.loop)
    else:
        reductions = [v for v in writer.values if isinstance(v, Reduction)]
        if reductions:
            _load_ahead(writer, (v for store in stores for v in store.values))
        for value in reductions:
            writer.ref(value)
        if stores:
            _write_stores(writer, stores)
    return finished_kernel(writer)


def finished_kernel(writer: KernelWriter) -> Kernel:
    """Return the kernel from a writer's statements."""
    sizes = _sizes(writer)
    parameters = writer.pointers()
    parameters += [KernelParameter(s, bool(v.is_Integer) and s == "N") for s, v in sizes.items()]
    blocks = [d.block_name for d in writer.tile.dims if d.block > 1]
    blocks += [n for n, _ in writer.tile.configs[0].blocks if n not in blocks]
    parameters += [KernelParameter(b, constant=True) for b in blocks]
    body = _without_idle_axes(writer)
    wide: list[Statement] = []
    if writer.offset_type is not None:
        wide = [assign(s, f"tl.cast({s}, {writer.offset_type})") for s, v in sizes.items() if _is_factor(s, v, body)]
    body = (*wide, *body)
    parameters += offset_parameters(body)
    return Kernel(
        writer.title,
        tuple(parameters),
        body,
        list(writer.reads.values()),
        list(writer.writes.values()),
        sizes,
        writer.tile,
        tuple(writer.adds),
    )


def _sizes(writer: KernelWriter) -> dict[str, Index]:
    """Return the sizes that a kernel takes, by name: those of its dimensions, and those used in statements."""
    dims = writer.tile.dims
    sizes = {d.size_name: d.size for d in dims if d.size_name in writer.used_sizes}
    sizes_of_dims = [e for d in dims for e in d.sizes]
    own = {s.name for s in (*writer.names, *writer.symbols.values())}
    used = sizes_used(writer.outer.statements, (*writer.printed_sizes, *sizes_of_dims))
    return sizes | {name: size for name, size in used.items() if name not in own and name not in sizes}


def _without_idle_axes(writer: KernelWriter) -> tuple[Statement, ...]:
    """Return the statements without unused parts of dimensions: those are indexed as a whole."""
    statements = writer.outer.statements
    parts = {writer.names[a] for d in writer.tile.dims if len(d.axes) > 1 for a in d.axes}
    return without_definitions(statements, parts - names_used(statements))


# how tiles of elements are laid out


def _form(writer: KernelWriter, value: Value) -> ast.expr | None:
    if isinstance(value, Reduction):
        return reduce_at_once(writer, value)
    return scan_at_once(writer, value) if isinstance(value, Scan) else None


def _index(writer: KernelWriter, index: Index) -> Index:
    """Return an index in terms of whole dimensions if possible, with sizes under their names in the kernel."""
    index = writer.tile.index(index)
    for dim in writer.tile.dims:
        if len(dim.axes) > 1:
            index = join_axes(index, dim.axes, dim.sizes, dim.whole)
    renamed = {d.size: d for d in writer.tile.dims if d.size in index.free_symbols and is_renamed(d.size)}
    writer.used_sizes.update(d.size_name for d in renamed.values())
    return writer.tile.index(index.xreplace({s: sympy.Symbol(d.size_name) for s, d in renamed.items()}))


def _sizes_in(writer: KernelWriter, index: Index) -> dict[int, str]:
    """Return the names of sizes by value, for values that can only mean these sizes."""
    columns = [d for d in writer.tile.dims if d.variable == "cols"]
    if index.free_symbols.isdisjoint(a for d in columns for a in d.axes):
        return {}
    sizes = {int(d.size): d.size_name for d in columns if d.size.is_Integer and d.size >= 16 and len(d.axes) == 1}
    multiple = multiple_of(index, sizes)
    names = {v: n for v, n in sizes.items() if v == multiple or index.has(sympy.Integer(v), sympy.Integer(-v))}
    writer.used_sizes.update(names.values())
    return names


def _mask_name(writer: KernelWriter, dim: Dim) -> str:
    return "mask" if len(writer.tile_dims) == 1 else f"{dim.variable}_mask"


def _masks(writer: KernelWriter, axes: Axes) -> list[str]:
    return [_mask_name(writer, dim) for dim in writer.masked_dims(axes)]


ELEMENTS = TileStrategy(_form, _index, lambda writer, index: writer.names, _sizes_in, _masks)
"""Tiles with the same orientation of each dimension throughout the kernel."""


# statements


def _write_stores(writer: KernelWriter, stores: Sequence[Store]) -> None:
    """Write stores after all of their loads, because code behind a store waits for it."""
    for value in stores[0].values if len(stores) > 1 else ():
        writer.ref(value)
    _load_ahead(writer, (v for store in stores[1:] for v in store.values))
    for store in stores:
        writer.store(store)


def _load_ahead(writer: KernelWriter, values: Iterable[Value]) -> None:
    """Load the memory inputs of values ahead, except inputs of reductions, so that all loads are in flight at once."""
    stored = {store.buffer.name for store in writer.stores}
    seen: set[int] = set()
    stack = [(value, False) for value in reversed(list(values))]
    while stack:
        value, ready = stack.pop()
        if ready:
            if isinstance(value, Load) and value.buffer.name not in stored:
                writer.ref(value)
            continue
        has_name = id(value) in writer.outer.expressions or id(value) in writer.inner.expressions
        if not has_name and id(value) not in seen and not isinstance(value, (Reduction, Scan)):
            seen.add(id(value))
            stack.append((value, True))
            stack.extend((v, False) for v in reversed(value.inputs))


def write_header(writer: KernelWriter) -> None:
    """Write the indices of a program's elements."""
    for dim in (d for d in writer.tile.dims if d.role == "grid"):
        start = converted(writer.tile.program(dim), writer.offset_type)
        if dim.block == 1:
            writer.define(dim.variable, start)
        else:
            _write_range(writer, dim, f"{start} * {dim.block_name} + ")
        writer.split_axes(dim)
    for dim in writer.tile.dims:
        if dim.role == "whole":
            _write_range(writer, dim, "")
            writer.split_axes(dim)


def _offset_type(writer: KernelWriter, loop: Dim) -> str | None:
    """Return the type of the index of a loop. It is that of offsets if a step advances by more than one element."""
    indices = [writer.tile.index(v.index) for v in (*writer.loads, *writer.stores)]
    far = any(coefficient(i, a) not in (0, 1) for i in indices for a in (*loop.axes, loop.whole))
    return writer.offset_type if far else None


def _write_range(writer: KernelWriter, dim: Dim, start: str, wide: str | None = None) -> None:
    text = f"{start}tl.arange(0, {dim.block_name})"
    if wide:
        text = converted(f"({text})", wide)
    if len(writer.tile_dims) == 2:
        place = "[:, None]" if dim is writer.tile_dims[0] else "[None, :]"
        text = f"({text}){place}" if start and not wide else f"{text}{place}"
    writer.define(dim.variable, text)
    if not writer.is_even(dim):
        writer.used_sizes.add(dim.size_name)
        writer.define(_mask_name(writer, dim), f"{dim.variable} < {dim.size_name}")


# loops


def _write_phases(writer: KernelWriter, loop: Dim) -> None:
    """Write one loop for each depth of reductions, and each store as soon as its inputs are known."""

    def is_accumulated(value: Value) -> bool:
        return isinstance(value, Reduction) and any(a in loop.axes for a in writer.over(value))

    def is_stored_in_loop(store: Store) -> bool:
        return any(map(writer.is_in_loop, store.values)) or loop in writer.dims_of(writer.axes_of(store))

    partners = online_pairs(writer.values, is_accumulated)
    depth = loop_depths(writer.values, partners, is_accumulated)
    last = max([_store_depth(s, depth) for s in writer.stores], default=0)
    pending = list(writer.stores)
    for phase in range(last + 1):
        reductions = [
            v for v in writer.values if isinstance(v, Reduction) and is_accumulated(v) and depth[id(v)] == phase + 1
        ]
        now = [s for s in pending if _store_depth(s, depth) == phase and is_stored_in_loop(s)]
        if not reductions and not now:
            continue
        _write_loop(writer, loop, reductions, now, partners)
        pending = [s for s in pending if s not in now]
    if pending:
        _write_stores(writer, pending)


def _write_loop(
    writer: KernelWriter,
    loop: Dim,
    reductions: Sequence[Reduction],
    stores: Sequence[Store],
    partners: Mapping[int, Reduction],
) -> None:
    writer.used_sizes.add(loop.size_name)
    wide = _offset_type(writer, loop)
    stages = pipeline_stages(writer)
    if loop.block == 1:
        counter = writer.unique("step") if wide else loop.variable
        steps = f"tl.range({loop.size_name}, num_stages={stages})"
    else:
        counter = "start"
        steps = f"tl.range(0, {loop.size_name}, {loop.block_name}, num_stages={stages})"

    def begin() -> None:
        if loop.block > 1:
            _write_range(writer, loop, "start + ", wide)
        elif wide:
            writer.define(loop.variable, f"tl.cast({counter}, {wide})")
        writer.split_axes(loop)

    def end() -> None:
        if stores:
            _write_stores(writer, stores)

    around = ReductionLoop(counter, steps, begin, end)
    write_reductions(writer, accumulators(writer, loop, reductions, partners), around)


def pipeline_stages(writer: KernelWriter) -> int:
    """Return the number of loop iterations with loads in flight.

    Shared memory has room for the loads of all but the last, at the smallest block sizes.
    """
    loads = [load for load in writer.loads if writer.is_in_loop(load)]
    sizes = (sum(_loaded_bytes(writer, load, dict(c.blocks)) for load in loads) for c in writer.tile.configs)
    return max(1, min(PIPELINE_STAGES, MAX_PIPELINED_BYTES // max(min(sizes), 1) + 1))


def _loaded_bytes(writer: KernelWriter, load: Load, blocks: Mapping[str, int]) -> int:
    elements = math.prod(blocks.get(d.block_name, d.block) for d in writer.dims_of(load.axes))
    return elements * load.buffer.dtype.itemsize


def _store_depth(store: Store, depth: Mapping[int, int]) -> int:
    """Return the number of loops that must end before the inputs of a store are known."""
    return max(depth[id(v)] for v in store.values)


def _is_factor(name: str, size: Index, statements: Iterable[Statement]) -> bool:
    """Return True if statements multiply a variable with a symbolic size."""
    if size.is_Integer:
        return False
    products = (
        node
        for value in expressions_in(statements)
        for node in ast.walk(value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    )
    return any(isinstance(side, ast.Name) and side.id == name for p in products for side in (p.left, p.right))
