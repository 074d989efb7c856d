"""The text of a kernel that goes through its axes in tiles."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence

import sympy

from fx_lsp.codegen.ir.index import Index, coefficient, count, is_renamed, join_axes
from fx_lsp.codegen.ir.kernel import Kernel, KernelParameter, Naming, sizes_used
from fx_lsp.codegen.ir.statement import For, Statement, assign, expressions_in, names_used, without_definitions
from fx_lsp.codegen.ir.text import parse_expression
from fx_lsp.codegen.ir.tile import Dim, Tile
from fx_lsp.codegen.ir.values import Coordinate, Load, Reduction, Scan, Store, Value
from fx_lsp.codegen.triton.expressions import KernelWriter, Scope
from fx_lsp.codegen.triton.reductions import accumulators, loop_depths, online_pairs, reduce_at_once, scan_at_once

PIPELINE_STAGES = 3
"""How many iterations of a loop have their loads under way at once."""


def write_fusion_kernel(
    title: str, tile: Tile, stores: Sequence[Store], indirect: Mapping[sympy.Symbol, Value], naming: Naming
) -> Kernel:
    """Return the kernel that writes `stores`."""
    return FusionKernel(title, tile, stores, indirect, naming).kernel()


class FusionKernel(KernelWriter):
    """Writes a kernel that goes through its axes in tiles."""

    def reduced(self, value: Value) -> ast.expr:
        if isinstance(value, Reduction):
            return reduce_at_once(self, value)
        assert isinstance(value, Scan)
        return scan_at_once(self, value)

    def kernel(self) -> Kernel:
        self._header()
        self._body()
        sizes = self._sizes()
        parameters = self.pointers()
        parameters += [KernelParameter(s, bool(v.is_Integer) and s == "N") for s, v in sizes.items()]
        blocks = [d.block_name for d in self.tile.dims if d.block > 1]
        blocks += [n for n, _ in self.tile.configs[0].blocks if n not in blocks]
        parameters += [KernelParameter(b, constant=True) for b in blocks]
        body = self._without_idle_axes(self.outer.statements)
        wide: list[Statement] = []
        if self._is_large():
            wide = [assign(s, f"tl.cast({s}, tl.int64)") for s, v in sizes.items() if _is_factor(s, v, body)]
        return Kernel(
            self.title,
            tuple(parameters),
            (*wide, *body),
            list(self.reads.values()),
            list(self.writes.values()),
            sizes,
            self.tile,
            tuple(self.adds),
        )

    def _sizes(self) -> dict[str, Index]:
        """Return the sizes that the kernel takes, by name: those of its dimensions, and what its statements use."""
        sizes = {d.size_name: d.size for d in self.tile.dims if d.size_name in self.used_sizes}
        indices = [v.index for v in self.values if isinstance(v, (Coordinate, Load))]
        strides = [e for b in (*self.reads.values(), *self.writes.values()) for e in b.strides]
        sizes_of_dims = [e for d in self.tile.dims for e in d.sizes]
        own = {s.name for s in (*self.names, *self.symbols.values())}
        used = sizes_used(self.outer.statements, (*indices, *strides, *sizes_of_dims))
        return sizes | {name: size for name, size in used.items() if name not in own and name not in sizes}

    def _without_idle_axes(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        """Return statements without the parts of dimensions that no index has: those are indexed as a whole."""
        parts = {self.names[a] for d in self.tile.dims if len(d.axes) > 1 for a in d.axes}
        return without_definitions(statements, parts - names_used(statements))

    def index(self, index: Index, indirect: Sequence[Value]) -> str:
        index = self.tile.index(index)
        for dim in self.tile.dims:
            if len(dim.axes) > 1:
                index = join_axes(index, dim.axes, dim.sizes, dim.whole)
        own = {d.size: d for d in self.tile.dims if d.size in index.free_symbols and is_renamed(d.size)}
        self.used_sizes.update(d.size_name for d in own.values())
        return super().index(index.xreplace({s: sympy.Symbol(d.size_name) for s, d in own.items()}), indirect)

    def _body(self) -> None:
        if self.loop is not None:
            self._phases(self.loop)
            return
        if any(isinstance(v, Reduction) for v in self.values):
            self._load_ahead(v for store in self.stores for v in store.values)
        for value in self.values:
            if isinstance(value, Reduction):
                self.ref(value)
        if self.stores:
            self._write(self.stores)

    def _write(self, stores: Sequence[Store]) -> None:
        """Write stores after all loads that they take: what stands behind a store waits for it."""
        for value in stores[0].values if len(stores) > 1 else ():
            self.ref(value)
        self._load_ahead(v for store in stores[1:] for v in store.values)
        for store in stores:
            self._store(store)

    def _load_ahead(self, values: Iterable[Value]) -> None:
        """Load what values take from memory, apart from what is reduced: all of it is on its way at once."""
        seen: set[int] = set()
        stack = [(value, False) for value in reversed(list(values))]
        while stack:
            value, ready = stack.pop()
            if ready:
                if isinstance(value, Load) and all(value.buffer.name != s.buffer.name for s in self.stores):
                    self.ref(value)
                continue
            has_name = id(value) in self.outer.expressions or id(value) in self.inner.expressions
            if not has_name and id(value) not in seen and not isinstance(value, (Reduction, Scan)):
                seen.add(id(value))
                stack.append((value, True))
                stack.extend((v, False) for v in reversed(value.inputs))

    def _header(self) -> None:
        programs = [d for d in self.tile.dims if d.role == "grid"]
        for number, dim in enumerate(programs):
            start = f"tl.program_id({number})" + (".to(tl.int64)" if self._is_large() else "")
            if dim.block == 1:
                self.define(dim.variable, start)
            else:
                self._range(dim, f"{start} * {dim.block_name} + ")
            self._split_axes(dim)
        for dim in self.tile.dims:
            if dim.role == "whole":
                self._range(dim, "")
                self._split_axes(dim)

    def _is_large(self) -> bool:
        """Return whether an offset may not fit into 32 bits."""
        sizes = [count(v.buffer.shape) for v in (*self.loads, *self.stores)]
        return any(not size.is_Integer or size >= 2**31 for size in sizes)

    def _is_wide(self, loop: Dim) -> bool:
        """Return whether that may be because of how far a loop goes: by more than one element with each step."""
        indices = [self.tile.index(v.index) for v in (*self.loads, *self.stores)]
        return self._is_large() and any(
            coefficient(i, a) not in (0, 1) for i in indices for a in (*loop.axes, loop.whole)
        )

    def _range(self, dim: Dim, start: str, wide: bool = False) -> None:
        text = f"{start}tl.arange(0, {dim.block_name})"
        if wide:
            text = f"({text}).to(tl.int64)"
        if len(self.tile_dims) == 2:
            place = "[:, None]" if dim is self.tile_dims[0] else "[None, :]"
            text = f"({text}){place}" if start and not wide else f"{text}{place}"
        self.define(dim.variable, text)
        if not self.is_even(dim):
            self.used_sizes.add(dim.size_name)
            self.define(self._mask(dim), f"{dim.variable} < {dim.size_name}")

    # loops

    def _phases(self, loop: Dim) -> None:
        partners = online_pairs(self.values, lambda v: self._accumulated(v, loop))
        depth = loop_depths(self.values, partners, lambda v: self._accumulated(v, loop))
        last = max([_store_depth(s, depth) for s in self.stores], default=0)
        pending = list(self.stores)
        for phase in range(last + 1):
            reductions = [
                v
                for v in self.values
                if isinstance(v, Reduction) and self._accumulated(v, loop) and depth[id(v)] == phase + 1
            ]
            now = [s for s in pending if _store_depth(s, depth) == phase and self._store_in_loop(s, loop)]
            if not reductions and not now:
                continue
            self._loop(loop, reductions, now, partners)
            pending = [s for s in pending if s not in now]
        if pending:
            self._write(pending)

    def _accumulated(self, value: Value, loop: Dim) -> bool:
        return isinstance(value, Reduction) and any(a in loop.axes for a in self._over(value))

    def _store_in_loop(self, store: Store, loop: Dim) -> bool:
        return any(map(self.is_in_loop, store.values)) or loop in self.dims_of(self.axes_of(store))

    def _loop(
        self, loop: Dim, reductions: list[Reduction], stores: list[Store], partners: Mapping[int, Reduction]
    ) -> None:
        self.inner = Scope()
        groups = accumulators(self, loop, reductions, partners)
        for group in groups:
            for statement in group.start:
                self.emit(statement)
        self.in_loop, before = True, self.comment
        self.used_sizes.add(loop.size_name)
        wide = self._is_wide(loop)
        if loop.block == 1:
            counter = self.unique("step") if wide else loop.variable
            steps = f"tl.range({loop.size_name}, num_stages={PIPELINE_STAGES})"
            if wide:
                self.define(loop.variable, f"tl.cast({counter}, tl.int64)")
        else:
            counter = "start"
            steps = f"tl.range(0, {loop.size_name}, {loop.block_name}, num_stages={PIPELINE_STAGES})"
            self._range(loop, "start + ", wide)
        self._split_axes(loop)
        for group in groups:
            group.step()
        if stores:
            self._write(stores)
        self.in_loop = False
        self.outer.statements.append(For(counter, parse_expression(steps), tuple(self.inner.statements)))
        self.inner, self.comment = Scope(), before
        for group in groups:
            group.end()


def _store_depth(store: Store, depth: Mapping[int, int]) -> int:
    """Return how many loops have to be over before what a store takes is known."""
    return max(depth[id(v)] for v in store.values)


def _is_factor(name: str, size: Index, statements: Iterable[Statement]) -> bool:
    """Return whether something is multiplied with a size that is known only when the kernel runs."""
    if size.is_Integer:
        return False
    products = (
        node
        for value in expressions_in(statements)
        for node in ast.walk(value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    )
    return any(isinstance(side, ast.Name) and side.id == name for p in products for side in (p.left, p.right))
