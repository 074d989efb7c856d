"""Parts that attention kernels share: tiles of scores and of operands, and the tiles inside a causal mask or window."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import sympy
import torch
from torch import fx

from fx_lsp.choices import Precision
from fx_lsp.codegen.graph.query import shape_of
from fx_lsp.codegen.graph.templates.attention_pattern import is_exponential, through_moves
from fx_lsp.codegen.ir.index import Coords, Index, Space, contiguous_strides, linear, power_of_two, rejoin_divisions
from fx_lsp.codegen.ir.kernel import (
    INDEX,
    Kernel,
    KernelParameter,
    converted,
    offset_parameters,
    offset_type,
    sizes_used,
)
from fx_lsp.codegen.ir.ops import (
    ADD,
    AND,
    COPY,
    DIV,
    EXP,
    EXP2,
    FMA,
    LOG2,
    MUL,
    NEG,
    NOT,
    OR,
    SUB,
    WHERE,
    op,
    triton_type,
)
from fx_lsp.codegen.ir.statement import Block, assign
from fx_lsp.codegen.ir.template import Attention, AttentionForward, AttentionGradients, AttentionScoreSum, TemplateCall
from fx_lsp.codegen.ir.text import fill_template, name, parse_expression, size_text
from fx_lsp.codegen.ir.tile import Config, Dim, Tile
from fx_lsp.codegen.ir.values import (
    Axes,
    Buffer,
    Comparison,
    Compute,
    Constant,
    Load,
    Test,
    Value,
    Variable,
    values_of,
)
from fx_lsp.codegen.ir.write_target import WriteTarget
from fx_lsp.codegen.lower.algebra import scale_value
from fx_lsp.codegen.lower.builder import Builder, Domain
from fx_lsp.codegen.triton.expressions import Computation, KernelWriter, TileStrategy
from fx_lsp.codegen.triton.reductions import LOG2_E, Accumulator, ReductionLoop, TileProduct, dot, write_reductions

BATCH = sympy.Symbol("batch")
"""The batch that a program computes, as a dimension of its tile."""

MAX_SUMS = 128
"""The largest number of sums of products in a thread, which has 255 registers."""

MAX_WARPS = 8
MIN_DOT = 16
"""The fewest rows or columns of a tile of scores."""

MAX_MODERATE = 1e30
"""The largest absolute value of a constant in scores whose products are certain to stay finite."""


@dataclass(frozen=True)
class ScoreTiling:
    """Describe how a kernel iterates over the scores of attention: in tiles of rows (m) by columns (n).

    `fixed` is the dimension that a program keeps ("m" or "n"); it loops over the other. `configs` are the rows, the
    columns, the warps and the stages to choose from, at a small depth. `depth` is that of all sums of products that a
    program keeps.
    """

    template: AttentionForward | AttentionGradients | AttentionScoreSum
    fixed: str
    configs: Sequence[tuple[int, int, int, int]]
    depth: int = 0

    def fitting(self) -> list[tuple[int, int, int, int]]:
        """Return configurations whose sums are in registers: with more warps, and then fewer rows or columns."""
        side = 0 if self.fixed == "m" else 1
        configs: dict[tuple[int, int, int, int], None] = {}
        for *sizes, warps, stages in self.configs:
            while sizes[side] * self.depth > MAX_SUMS * 32 * warps and sizes[side] > MIN_DOT:
                if warps < MAX_WARPS:
                    warps *= 2
                else:
                    sizes[side] //= 2
            configs[sizes[0], sizes[1], warps, stages] = None
        return list(configs)


class AttentionTiles:
    """Write the parts that attention kernels share: tiles of scores, and of operands.

    Operands have a row for each m or n, and a depth.
    """

    def __init__(self, tiling: ScoreTiling, call: TemplateCall) -> None:
        self.targets, self.buffers = call.targets, call.buffers
        subgraph, layout, fixed = tiling.template.subgraph, tiling.template.attention.layout, tiling.fixed
        self.subgraph, self.layout = subgraph, layout
        self.space = Space()
        self.b, self.m, self.n = layout.axes(self.space)
        self.fixed = fixed
        self.precision: Precision = call.choices.precision
        self.raw: dict[int, Value] = {}
        self.computed: dict[int, ast.expr] = {}
        self.depths: dict[sympy.Symbol, str] = {}
        self.names = {self.b: "batch"} if self.b != 0 else {}
        small = min((dot_block(int(s)) for s in (layout.m, layout.n) if s.is_Integer), default=math.inf)
        fitting = [c for c in tiling.fitting() if max(c[:2]) <= small] or [(int(small), int(small), 4, 2)]
        rows, cols = fitting[0][:2]
        chosen = tuple(Config((("ROWS", r), ("COLS", c)), w, s) for r, c, w, s in fitting)
        self.mdim = Dim((self.m,), (layout.m,), "grid" if fixed == "m" else "loop", rows, "rows", "M", "ROWS")
        self.ndim = Dim((self.n,), (layout.n,), "grid" if fixed == "n" else "loop", cols, "cols", "N", "COLS")
        self.batch = Dim((BATCH,), (layout.batch,), "grid", 1, "batch", "B", "")
        self.kept, self.stepped = (self.mdim, self.ndim) if fixed == "m" else (self.ndim, self.mdim)
        strategy = TileStrategy(self._masked, _same_index, self._axis_names, _no_sizes, self._masks)
        tile = Tile((self.kept, self.batch, self.stepped), {}, chosen)
        self.writer = KernelWriter(call.title, tile, Computation(), call.naming, strategy)
        memory = call.memory(subgraph)
        self.bound: dict[fx.Node, tuple[Coords, Value]] = {}
        self.builder = Builder(self.space, Domain((), ()), memory, True, self.bound)
        own = {INDEX, "batch", "rows", "cols", "acc", "products", "scores", "weights", "scale", "higher", "base"}
        self.writer.reserved |= own | {"running_max", "running_sum", "grad_weights"}
        self.writer.reserved |= {
            s.name for b in memory.values() for e in (*b.shape, *b.strides) for s in e.free_symbols
        }
        self.batched = layout.batched

    # how things are written

    def _columns(self, axes: Collection[sympy.Basic]) -> str:
        """Return the columns of scores, shaped as rows of an operand if there is a depth."""
        return "cols[None, :]" if self.depths.keys().isdisjoint(axes) else "cols[:, None]"

    def _axis_names(self, writer: KernelWriter, index: Index) -> dict[sympy.Symbol, str]:
        names = {self.m: "rows[:, None]", self.n: self._columns(index.free_symbols)}
        return {**self.names, **names, **{d: f"{v}[None, :]" for d, v in self.depths.items()}}

    def _masks(self, writer: KernelWriter, axes: Axes) -> list[str]:
        dims = ((self.m, self.mdim, "rows[:, None]"), (self.n, self.ndim, self._columns(axes)))
        parts = [
            f"({variable} < {size_text(dim.size)})"
            for axis, dim, variable in dims
            if axis in axes and not writer.is_even(dim)
        ]
        for axis, variable in self.depths.items():
            size = self.space.sizes[axis]
            if axis in axes and size != dot_block(int(size)):
                parts.append(f"({variable}[None, :] < {size})")
        return parts

    def _masked(self, writer: KernelWriter, value: Value) -> ast.expr | None:
        """Write a value behind a causal mask. The mask is applied only in tiles that its bound crosses."""
        mask = causal_mask(value, self.m, self.n) if writer.in_loop and writer.loop is self.stepped else None
        if mask is None:
            return None
        variable = writer.assign(value, writer.ref(mask.kept), "masked")
        condition = parse_expression(f"cols[None, :] <= rows[:, None]{signed(mask.offset)}")
        parts = {"c": condition, "kept": variable, "other": writer.ref(mask.other)}
        masked = assign(variable.id, fill_template("tl.where(c, kept, other)", parts), value.node)
        crosses = crosses_bound(mask.offset, self.fixed, writer.tile.program(self.kept))
        writer.emit(Block("if", parse_expression(crosses), (masked,), value.node))
        return variable

    # parts

    def depth_axis(self, size: Index) -> sympy.Symbol:
        """Return an axis for the inner dimension of an operand. Operands of the same depth share it."""
        for axis in self.depths:
            if self.space.sizes[axis] == size:
                return axis
        axis = self.space.axis("d", size)
        variable = self.writer.unique("depth" if not self.depths else f"depth_{len(self.depths)}")
        self.depths[axis] = variable
        self.writer.define(variable, f"tl.arange(0, {dot_block(int(size))})")
        return axis

    def operand(self, node: fx.Node, row: sympy.Symbol, depth: sympy.Symbol, transposed: bool) -> Value:
        """Return the tile of an operand with a row for each `row`. `node` is a node of the subgraph.

        `transposed` is True if the tensor has the depth before the rows.
        """
        at = (depth, row) if transposed else (row, depth)
        value = self.builder.lower(node, (self.b, *at) if self.batched else at)
        if isinstance(value, Load) and value.buffer.dtype == node.meta["val"].dtype:
            value = self.raw.setdefault(id(value), replace(value, dtype=value.buffer.dtype))
        variable = next((v for n in through_moves(node) if (v := self.writer.naming.variable(n))), None)
        if variable is not None:
            self.writer.wishes.setdefault(id(value), variable)
        return value

    def operand_tile(self, value: Value, dtype: torch.dtype) -> ast.expr:
        """Return an operand as an expression. Loaded half precision is not converted; a computed operand gets
        a name.
        """
        if id(value) in self.computed:
            return self.computed[id(value)]
        expr = self.writer.ref(value)
        cast = expr if value.dtype == dtype else fill_template(f"a.to({triton_type(dtype)})", {"a": expr})
        if isinstance(expr, ast.Name):
            return cast
        variable = self.writer.unique(self.writer.suggested_name(value))
        self.writer.define(variable, cast, value.node)
        self.computed[id(value)] = name(variable)
        return self.computed[id(value)]

    def sides(self, product: fx.Node) -> tuple[Value, Value]:
        """Return the operands of a product that computes scores: one with the rows m, one with the rows n."""
        left: Any
        right: Any
        left, right = self.subgraph.of[product].args[:2]
        depth = self.depth_axis(shape_of(left)[-1])
        return self.operand(left, self.m, depth, False), self.operand(right, self.n, depth, True)

    def at(self, node: fx.Node, swapped: bool = False) -> Coords:
        """Return the coordinates of a node computed from scores. `swapped` is True if its columns precede its rows."""
        rows = (self.m, self.layout.m), (self.n, self.layout.n)
        order = (rows[1], rows[0]) if swapped else rows
        axes, sizes = zip((self.b, self.layout.batch), *order, strict=True)
        return self.space.coordinates(linear(axes, contiguous_strides(sizes)), shape_of(node))

    def score(self, node: fx.Node, swapped: bool = False) -> Value:
        """Return the value of a node computed from scores, at the current rows and columns."""
        return self.builder.lower(self.subgraph.of[node], self.at(node, swapped))

    def bind(self, node: fx.Node, text: str) -> None:
        """Bind a node computed from scores to the variable `text` from here on."""
        axes = frozenset(s for s in (self.b, self.m, self.n) if s.is_Symbol)
        self.bound[self.subgraph.of[node]] = self.at(node), Variable(torch.float32, node, axes, text)

    def bind_weights(self, attention: Attention) -> None:
        """Bind the weights to powers of 2 of the scores, computed with the maximum and sum of each row.

        Terms that are constant along a row are computed first.
        """
        weights: Any = self.subgraph.of.get(attention.weights)
        if weights is None or not is_exponential(weights.args[0]):
            return
        coords, b = self.at(attention.weights), self.builder
        power, total = weights.args
        shifted, row_max, total = (b.operand(n, coords, (), torch.float32) for n in (*power.args[0].args, total))
        if is_moderate(shifted):
            row = b.compute(op(f"a * {LOG2_E!r} + tl.log2(b)"), (row_max, total), torch.float32, attention.row_sum)
            exponent = b.compute(SUB, (scale_value(b, shifted, LOG2_E), row), torch.float32, attention.weights)
        else:
            below = b.compute(SUB, (shifted, row_max), torch.float32, attention.weights)
            power_of_sum = b.compute(LOG2, (total,), torch.float32, attention.row_sum)
            scaled = b.compute(MUL, (below, b.constant(LOG2_E, torch.float32)), torch.float32, attention.weights)
            exponent = b.compute(SUB, (scaled, power_of_sum), torch.float32, attention.weights)
        self.bound[weights] = coords, b.compute(EXP2, (exponent,), torch.float32, attention.weights)

    def take(self, values: Sequence[Value]) -> None:
        """Set the values that the kernel writes."""
        self.writer.symbols = {id(v): s for s, v in self.builder.indirect.items()}
        self.writer.take(values)

    def product(self, variable: str, left: ast.expr, right: ast.expr, dtype: torch.dtype, node: fx.Node) -> None:
        """Write the product of two tiles."""
        self.writer.define(variable, dot(left, right, dtype, self.precision), node)

    def sum_of_products(
        self, variable: str, block: str, depth: sympy.Symbol, dtype: torch.dtype, node: fx.Node
    ) -> TileProduct:
        """Return a sum of products with a row for each element of a block."""
        width = dot_block(int(self.space.sizes[depth]))
        return TileProduct(variable, (block, str(width)), dtype, self.precision, node)

    def begin(self) -> None:
        """Write the indices of the program."""
        dim = self.kept
        tile = self.writer.tile
        start = f"{tile.program(dim)} * {dim.block_name}"
        self.writer.define(dim.variable, f"{start} + tl.arange(0, {dim.block_name})")
        if self.layout.batch != 1:
            self.writer.define("batch", converted(tile.program(self.batch), self.offset_type))

    @property
    def offset_type(self) -> str | None:
        """The type of offsets into the tensors of the kernel, None if 32 bits are enough."""
        return offset_type(b.shape for b in self.buffers.values())

    def finished(self, writes: Sequence[Buffer]) -> Kernel:
        """Return the kernel written so far."""
        writer, writes = self.writer, list({b.name: b for b in writes}.values())
        buffers = (*writer.reads.values(), *writes)
        layouts = (e for b in buffers for e in (*b.shape, *b.strides))
        sizes = sizes_used(writer.outer.statements, (*self.space.sizes.values(), *layouts, *writer.printed_sizes))
        parameters = [KernelParameter(p) for p in (*(f"{b.name}_ptr" for b in buffers), *sizes)]
        parameters += [KernelParameter("ROWS", constant=True), KernelParameter("COLS", constant=True)]
        body = tuple(writer.outer.statements)
        parameters += offset_parameters(body)
        dims = [d for d in writer.tile.dims if d.axes != (BATCH,) or self.layout.batch != 1]
        tile = replace(writer.tile, dims=tuple(dims))
        reads = list(writer.reads.values())
        return Kernel(writer.title, tuple(parameters), body, reads, writes, sizes, tile)

    def write_loop(
        self, bounds: tuple[str, str], accumulators: Sequence[Accumulator], begin: Callable[[], None]
    ) -> None:
        """Write a loop over the tiles of the dimension that is not fixed. `begin` writes the inputs of the
        accumulators.
        """
        dim, (start, end) = self.stepped, bounds

        def write_head() -> None:
            self.writer.define(dim.variable, f"start + tl.arange(0, {dim.block_name})")
            begin()

        loop = ReductionLoop("start", f"range({start}, {end}, {dim.block_name})", write_head)
        write_reductions(self.writer, accumulators, loop)

    def store(self, place: WriteTarget, coords: Coords, text: str) -> None:
        """Write a tile to memory."""
        buffer, index = place.buffer, rejoin_divisions(place.index(self.space, coords))
        axes = frozenset(s for c in coords for s in c.free_symbols)
        mask = self.writer.mask(axes)
        args = [self.writer.pointer(buffer, index, ()), text, *([f"mask={mask}"] if mask else [])]
        self.writer.call("tl.store", args, place.node)


def _same_index(writer: KernelWriter, index: Index) -> Index:
    return index


def _no_sizes(writer: KernelWriter, index: Index) -> dict[int, str]:
    return {}


def rounded(scores: ast.expr, dtype: torch.dtype) -> ast.expr:
    """Return float32 scores converted to the dtype of a product's operands."""
    return scores if dtype is torch.float32 else fill_template(f"a.to({triton_type(dtype)})", {"a": scores})


def is_moderate(scores: Value) -> bool:
    """Return True if scores stay finite when multiplied with a number like 1.44, or are -inf already.

    They do without a mask in memory and without very large constants, which could fill a whole row.
    """
    return all(
        not isinstance(v, Load) and not (isinstance(v, Constant) and MAX_MODERATE < abs(v.value) < math.inf)
        for v in values_of([scores])
    )


def dot_block(size: int) -> int:
    """Return the block that holds `size` elements. `tl.dot` takes powers of two from 16 on."""
    return max(16, power_of_two(size))


def loop_bounds(tiles: AttentionTiles, values: Sequence[Value], masked: float) -> tuple[str, str]:
    """Return the loop bounds of a kernel. Outside them, masks set all values to `masked`."""
    m, n, fixed, layout = tiles.m, tiles.n, tiles.fixed, tiles.layout
    program = tiles.writer.tile.program(tiles.kept)
    above, below = causal_offset(values, masked, m, n), causal_offset(values, masked, n, m)
    over, block, size = ("ROWS", "COLS", layout.n) if fixed == "m" else ("COLS", "ROWS", layout.m)
    first, last = (below, above) if fixed == "m" else (above, below)
    start, end = "0", size_text(size)
    if first is not None:
        start = f"{program} * {over}{signed(-first)}"
        start = f"tl.maximum({start}, 0)" if first > 0 else start
        start = f"{start} // {block} * {block}"
    if last is not None:
        end = f"tl.minimum({end}, ({program} + 1) * {over}{signed(last)})"
    return start, end


@dataclass(frozen=True)
class CausalMask:
    """The value that a causal mask keeps for n <= m + `offset`, and the constant elsewhere."""

    kept: Value
    other: Constant
    offset: int


def causal_mask(value: Value, m: sympy.Symbol, n: sympy.Symbol) -> CausalMask | None:
    """Return the causal mask of a value over rows and columns, or None for any other value."""
    if not (isinstance(value, Compute) and value.op is WHERE):
        return None
    condition, yes, no = value.args
    for value_inside, other, holds in ((no, yes, True), (yes, no, False)):
        if isinstance(condition, Test) and len(condition.guard) == 1 and isinstance(other, Constant):
            offset = _masked_above(condition, m, n, holds) if {m, n} <= value_inside.axes else None
            if offset is not None:
                return CausalMask(value_inside, other, offset)
    return None


def crosses_bound(offset: int, fixed: str, program: str) -> str:
    """Return the condition, as text, that the bound of a causal mask may cross the tile at `start` of a program."""
    if fixed == "m":
        return f"start + COLS > {program} * ROWS{signed(offset)}"
    return f"start < ({program} + 1) * COLS{signed(-offset)}"


def signed(offset: int) -> str:
    """Return the text that adds a number, "" for 0."""
    return f" + {offset}" if offset > 0 else f" - {-offset}" if offset < 0 else ""


def causal_offset(values: Sequence[Value], masked: float, m: sympy.Symbol, n: sympy.Symbol) -> int | None:
    """Return the k for which all values are `masked` (-inf or 0) at n > m + k, or None if no mask guarantees one."""
    offset = max(_masked_offsets(value, m, n)[masked] for value in values)
    return int(offset) if math.isfinite(offset) else None


LOWEST, ZEROED = -math.inf, 0.0
"""The constants that masks set: -inf in scores, 0 in weights and gradients."""

Offsets: TypeAlias = "dict[float, float]"
"""For each masked constant, the k for which a value equals it at n > m + k: inf for never, -inf for always."""


def _masked_offsets(value: Value, m: sympy.Symbol, n: sympy.Symbol) -> Offsets:
    """Return the masked offsets of a value, computed from those of its inputs."""
    offsets: dict[int, Offsets] = {}
    for each in values_of([value]):
        of_each = dict.fromkeys((LOWEST, ZEROED), math.inf)
        if isinstance(each, Constant) and each.value in of_each:
            of_each[float(each.value)] = -math.inf
        elif isinstance(each, Compute) and each.op is WHERE:
            of_each = _chosen_offsets(each, [offsets[id(a)] for a in each.args[1:]], m, n)
        elif isinstance(each, Compute):
            of_each = _computed_offsets(each, [offsets[id(a)] for a in each.args])
        offsets[id(each)] = of_each
    return offsets[id(value)]


def _chosen_offsets(choice: Compute, chosen: Sequence[Offsets], m: sympy.Symbol, n: sympy.Symbol) -> Offsets:
    """Return the masked offsets of a choice: those of both sides, or those from which the masked side is chosen."""
    bounds = (_masked_above(choice.args[0], m, n, holds) for holds in (True, False))
    from_on = [math.inf if bound is None else bound for bound in bounds]
    yes, no = chosen
    return {k: min(max(from_on[0], yes[k]), max(from_on[1], no[k]), max(yes[k], no[k])) for k in (LOWEST, ZEROED)}


def _computed_offsets(value: Compute, args: Sequence[Offsets]) -> Offsets:
    """Return the offsets from which an operation is certain to give -inf or 0."""
    op, low, zero = value.op, [a[LOWEST] for a in args], [a[ZEROED] for a in args]
    positive = [isinstance(a, Constant) and a.value > 0 for a in value.args]
    if op.is_cast or op is COPY:
        return dict(args[0])
    if op is ADD:
        return {LOWEST: min(low), ZEROED: max(zero)}
    if op is SUB:
        return {LOWEST: low[0], ZEROED: max(zero)}
    if op is MUL:
        return {LOWEST: low[0] if positive[1] else low[1] if positive[0] else math.inf, ZEROED: min(zero)}
    if op is DIV:
        return {LOWEST: low[0] if positive[1] else math.inf, ZEROED: zero[0]}
    if op is FMA:
        return {LOWEST: low[2], ZEROED: max(min(zero[:2]), zero[2])}
    if op is EXP or op is EXP2:
        return {LOWEST: math.inf, ZEROED: low[0]}
    return {LOWEST: math.inf, ZEROED: zero[0] if op is NEG else math.inf}


def _masked_above(condition: Value, m: sympy.Symbol, n: sympy.Symbol, holds: bool) -> int | None:
    """Return the k for which a condition is `holds` at every n > m + k, or None."""
    if isinstance(condition, Test):
        offsets_known = [k for c in condition.guard if (k := _bound_of(c, m, n, holds)) is not None]
        return min(offsets_known, default=None) if not holds or len(condition.guard) == 1 else None
    if not isinstance(condition, Compute):
        return None
    if condition.op is NOT:
        return _masked_above(condition.args[0], m, n, not holds)
    if condition.op in (AND, OR):
        if (condition.op is AND) == holds:
            offsets = [_masked_above(a, m, n, holds) for a in condition.args if not _always(a)]
            return offsets[0] if len(offsets) == 1 else None
        offsets_known = [k for a in condition.args if (k := _masked_above(a, m, n, holds)) is not None]
        return min(offsets_known, default=None)
    return None


def _bound_of(condition: Comparison, m: sympy.Symbol, n: sympy.Symbol, holds: bool) -> int | None:
    sign = {"<=": (1, 0), "<": (1, -1), ">=": (-1, 0), ">": (-1, -1)}.get(condition.sign)
    if sign is None:
        return None
    gap = sympy.expand((condition.left - condition.right) * sign[0] - sign[1])  # the condition is: gap <= 0
    slope, rest = gap.coeff(n), sympy.expand(gap - gap.coeff(n) * n - gap.coeff(m) * m)
    if gap.coeff(m) != -slope or not rest.is_Integer:
        return None
    if slope == 1 and not holds:  # n - m + rest <= 0 fails where n > m - rest
        return -int(rest)
    if slope == -1 and holds:  # m - n + rest <= 0 holds where n >= m + rest
        return int(rest) - 1
    return None


def _always(value: Value) -> bool:
    return isinstance(value, Constant) and bool(value.value)
