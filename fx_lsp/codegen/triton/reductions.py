"""Write reductions: at once if a program holds all elements, otherwise with accumulators in a loop."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from fx_lsp.choices import Precision
from fx_lsp.codegen.ir.ops import EXP, SUB, triton_type
from fx_lsp.codegen.ir.statement import Assign, For, assign
from fx_lsp.codegen.ir.text import fill_template, name, parse_expression, unparse
from fx_lsp.codegen.ir.tile import Dim
from fx_lsp.codegen.ir.values import Axes, Compute, Constant, Reduction, Scan, Value
from fx_lsp.codegen.triton.expressions import KernelWriter
from fx_lsp.codegen.triton.masks import covers_mask, identity, padding_value

_REDUCE_CALLS = {
    "sum": "tl.sum(a, {})",
    "min": "tl.reduce(a, {}, combine_fn=nan_min)",
    "max": "tl.reduce(a, {}, combine_fn=nan_max)",
    "prod": "tl.reduce(a, {}, combine_fn=product)",
}
_ACCUMULATE = {
    "sum": "a + b",
    "max": "nan_max(a, b)",
    "min": "nan_min(a, b)",
    "prod": "a * b",
}


# at once


def _masked(writer: KernelWriter, value: Value, kind: str, over: Axes) -> ast.expr:
    """Return the elements of a value, with the identity of the reduction outside its mask."""
    expr = writer.ref(value)
    neutral = identity(kind, value.dtype)
    if padding_value(value, writer.padding, covers_mask(writer.masked_dims, over)) == float(neutral):
        return expr
    mask = writer.mask(over)
    if not mask:
        return expr
    neutral_text = writer.ref(Constant(value.dtype, None, frozenset(), neutral))
    return fill_template("tl.where(m, a, i)", {"m": parse_expression(mask), "a": expr, "i": neutral_text})


def _axis(writer: KernelWriter, dim: Dim) -> str:
    return f"axis={writer.axis_number(dim)}" + (", keep_dims=True" if len(writer.tile_dims) == 2 else "")


def _broadcast_along(writer: KernelWriter, value: Value, dim: Dim, expr: ast.expr) -> ast.expr:
    """Return `expr` with an element for each index of a dimension."""
    if dim in writer.dims_of(value.axes):
        return expr
    return fill_template(
        "tl.broadcast_to(a, s)", {"a": expr, "s": parse_expression(writer.tile_shape(value.axes, dim))}
    )


def _dim_of(writer: KernelWriter, value: Reduction | Scan) -> Dim:
    return next(d for d in writer.tile.dims if any(a in d.axes for a in value.over))


def reduce_at_once(writer: KernelWriter, value: Reduction) -> ast.expr:
    """Return a reduction of elements that a program holds at once."""
    dim = _dim_of(writer, value)
    over = frozenset(value.over)
    if value.kind in ("argmax", "argmin"):
        return _arg_reduction(writer, value, dim)
    arg = _broadcast_along(writer, value.args[0], dim, _masked(writer, value.args[0], value.kind, over))
    call = _REDUCE_CALLS[value.kind]
    if value.kind in ("max", "min") and (_only_shifts(writer, value) or not value.dtype.is_floating_point):
        call = f"tl.{value.kind}(a, {{}})"
    return fill_template(call.format(_axis(writer, dim)), {"a": arg})


def _only_shifts(writer: KernelWriter, value: Reduction) -> bool:
    """Return True if a maximum is only subtracted from its own elements, so that NaN shows in any case."""
    users = [v for v in writer.values if value in v.inputs]
    return all(isinstance(u, Compute) and u.op is SUB and u.args == (value.args[0], value) for u in users) and not any(
        s.value is value for s in writer.stores
    )


def _arg_reduction(writer: KernelWriter, value: Reduction, dim: Dim) -> ast.expr:
    helper = "arg_max" if value.kind == "argmax" else "arg_min"
    elements, places = value.args
    values = _broadcast_along(writer, elements, dim, _masked(writer, elements, value.kind, frozenset(value.over)))
    where = fill_template(
        "tl.broadcast_to((a).to(tl.int64), s)",
        {"a": writer.ref(places), "s": parse_expression(writer.tile_shape(elements.axes, dim))},
    )
    call = fill_template(f"tl.reduce((a, b), {_axis(writer, dim)}, combine_fn={helper})", {"a": values, "b": where})
    variable = writer.unique("found")
    writer.define(("_", variable), call, value.node)
    return name(variable)


def scan_at_once(writer: KernelWriter, value: Scan) -> ast.expr:
    """Return a scan of elements that a program holds at once, or one that continues from the steps before."""
    dim = _dim_of(writer, value)
    arg = _broadcast_along(writer, value.arg, dim, writer.ref(value.arg))
    if dim.role != "loop":
        return fill_template(f"tl.{value.kind}(a, axis={writer.axis_number(dim)})", {"a": arg})
    kind, sign, neutral = ("sum", "+", 0) if value.kind == "cumsum" else ("prod", "*", 1)
    before = writer.unique("before")
    others = Value(value.dtype, None, frozenset(a for a in value.axes if dim not in writer.dims_of(frozenset({a}))))
    shape = writer.tile_shape(others.axes) if len(writer.tile_dims) > 1 else "[]"
    start = assign(before, f"tl.full({shape}, {neutral}, {triton_type(value.dtype)})", value.node)
    writer.outer.statements.append(start)
    element = arg if isinstance(arg, ast.Name) else writer.assign(value.arg, arg)
    call = fill_template(
        f"tl.{value.kind}(a, axis={writer.axis_number(dim)}) {sign} b", {"a": element, "b": name(before)}
    )
    running = writer.assign(value, call)
    step = fill_template(_REDUCE_CALLS[kind].format(_axis(writer, dim)), {"a": element})
    writer.define(before, step, value.node, sign)
    return running


# in a loop


def online_pairs(values: Iterable[Value], accumulated: Callable[[Value], bool]) -> dict[int, Reduction]:
    """Return the sums of exp(x - max(x)), by id, each with its maximum: one loop computes both."""
    pairs: dict[int, Reduction] = {}
    for value in values:
        if not (isinstance(value, Reduction) and value.kind == "sum" and accumulated(value)):
            continue
        exponential = value.args[0]
        if not (isinstance(exponential, Compute) and exponential.op is EXP):
            continue
        shifted = exponential.args[0]
        if not (isinstance(shifted, Compute) and shifted.op is SUB):
            continue
        element, maximum = shifted.args
        if (
            isinstance(maximum, Reduction)
            and maximum.kind == "max"
            and maximum.args == (element,)
            and maximum.over == value.over
        ):
            pairs[id(value)] = maximum
    return pairs


def loop_depths(
    values: Iterable[Value], pairs: Mapping[int, Reduction], accumulated: Callable[[Value], bool]
) -> dict[int, int]:
    """Return the number of loops that must end before each value is known, by id."""
    depths: dict[int, int] = {}
    for value in values:
        if id(value) in pairs:
            depths[id(value)] = depths[id(pairs[id(value)])]
        else:
            depths[id(value)] = max((depths[id(i)] for i in value.inputs), default=0) + int(accumulated(value))
    return depths


@dataclass(frozen=True)
class Accumulator:
    """Reductions accumulated together: the statements before the loop, and functions that write a step and the end."""

    start: list[Assign]
    step: Callable[[], None]
    end: Callable[[], None]


@dataclass(frozen=True)
class ReductionLoop:
    """The loop around accumulators: its variable, and the range of it as text.

    `begin` writes the statements before the steps of the accumulators, and `end` those after.
    """

    variable: str
    range: str
    begin: Callable[[], None]
    end: Callable[[], None] = lambda: None
    node: fx.Node | None = None


def write_reductions(writer: KernelWriter, accumulators: Sequence[Accumulator], loop: ReductionLoop) -> None:
    """Write the loop of some accumulators."""
    for accumulator in accumulators:
        for statement in accumulator.start:
            writer.emit(statement)

    def write_step() -> None:
        loop.begin()
        for accumulator in accumulators:
            accumulator.step()
        loop.end()

    writer.write_loop(write_step, lambda body: For(loop.variable, parse_expression(loop.range), body, loop.node))
    for accumulator in accumulators:
        accumulator.end()


def accumulators(
    writer: KernelWriter, loop: Dim, reductions: Sequence[Reduction], pairs: Mapping[int, Reduction]
) -> list[Accumulator]:
    """Return the accumulators for reductions in one loop over a dimension."""
    accumulators: list[Accumulator] = []
    paired = {id(pairs[id(r)]): r for r in reductions if id(r) in pairs}
    several: dict[tuple[str, int], list[Reduction]] = {}
    for reduction in reductions:
        if id(reduction) in pairs:
            continue
        if id(reduction) in paired:
            accumulators.append(_online_softmax(writer, loop, reduction, paired[id(reduction)]))
        elif reduction.kind in ("var_mean", "argmax", "argmin"):
            several.setdefault((reduction.kind, id(reduction.args[0])), []).append(reduction)
        else:
            accumulators.append(_simple_accumulator(writer, loop, reduction))
    for (kind, _), parts in several.items():
        accumulators.append(
            _welford_accumulator(writer, loop, parts)
            if kind == "var_mean"
            else _arg_accumulator(writer, loop, parts[0])
        )
    return accumulators


def _new_accumulator(writer: KernelWriter, wish: str, value: Value, loop: Dim, start: Constant) -> tuple[str, Assign]:
    """Return a variable for an accumulator of `value`, and the statement that initialises it."""
    variable, dtype, node = writer.unique(wish), start.dtype, start.node
    text = unparse(writer.ref(start))
    if not writer.tile_dims or writer.tile_shape(value.axes, loop) == "[]":
        return variable, assign(variable, f"tl.full([], {text}, {triton_type(dtype)})", node)
    shape = writer.tile_shape(value.axes, loop)
    if not start.value and start.value is not False:
        return variable, assign(variable, f"tl.zeros({shape}, {triton_type(dtype)})", node)
    return variable, assign(variable, f"tl.full({shape}, {text}, {triton_type(dtype)})", node)


def _accumulator_name(writer: KernelWriter, value: Reduction) -> str:
    variable = writer.naming.variable(value.node) if value.node is not None else None
    return variable or {"sum": "total", "max": "most", "min": "least", "prod": "product_"}.get(value.kind, value.kind)


def _simple_accumulator(writer: KernelWriter, loop: Dim, value: Reduction) -> Accumulator:
    arg = value.args[0]
    wish = f"{_accumulator_name(writer, value)}_acc"
    first = Constant(arg.dtype, value.node, frozenset(), identity(value.kind, arg.dtype))
    variable, start = _new_accumulator(writer, wish, arg, loop, first)

    def step() -> None:
        expr = _masked(writer, arg, value.kind, frozenset(value.over))
        if value.kind == "sum":
            writer.define(variable, expr, value.node, "+")
            return
        template = _ACCUMULATE[value.kind]
        writer.define(variable, fill_template(template, {"a": name(variable), "b": expr}), value.node)

    def end() -> None:
        if loop.block == 1:
            writer.bind_name(value, name(variable))
            return
        call = _REDUCE_CALLS[value.kind]
        writer.assign(value, fill_template(call.format(_axis(writer, loop)), {"a": name(variable)}))

    return Accumulator([start], step, end)


ONLINE_GROUP = 16
"""The number of neighbours that an online sum combines.

In a row, each group accumulates on its own, so that threads of different groups need not synchronise in every step.
"""


def _online_softmax(writer: KernelWriter, loop: Dim, maximum: Reduction, total: Reduction) -> Accumulator:
    """Return the accumulator of the maximum and the sum of exponentials below it, in one loop."""
    arg = maximum.args[0]
    high, low = writer.unique("running_max"), writer.unique("running_sum")
    block, axis = loop.block > 1, _axis(writer, loop)
    groups = f"{loop.block_name} // {ONLINE_GROUP}" if block and len(writer.tile_dims) == 1 else ""
    dims = writer.dims_of(arg.axes)
    kept_blocks = ", ".join(d.block_name if d in dims and d is not loop else "1" for d in writer.tile_dims)
    shape = kept_blocks if len(writer.tile_dims) > 1 else groups
    start = [
        assign(high, f'tl.full([{shape}], -float("inf"), {triton_type(arg.dtype)})', maximum.node),
        assign(low, f"tl.full([{shape}], 0.0, {triton_type(arg.dtype)})", maximum.node),
    ]

    def step() -> None:
        expr = _masked(writer, arg, "max", frozenset(maximum.over))
        element = unparse(expr if isinstance(expr, ast.Name) else writer.assign(arg, expr))
        higher, base = writer.unique("higher"), writer.unique("base")
        grouped, along, beside, node = element, axis, base, maximum.node
        if groups:
            grouped, along, beside = writer.unique("grouped"), "axis=1", f"{base}[:, None]"
            writer.define(grouped, f"tl.reshape({element}, [{groups}, {ONLINE_GROUP}])", node)
        powers = exponential_below(grouped, beside)
        writer.define(higher, f"tl.maximum({high}, {f'tl.max({grouped}, {along})' if block else element})", node)
        writer.define(base, softmax_base(higher), node)
        total_of_step = f"tl.sum({powers}, {along})" if block else powers
        writer.define(low, f"{low} * {exponential_below(high, base)} + {total_of_step}", node)
        writer.define(high, higher, node)

    def end() -> None:
        whole, sum_ = high, low
        if groups:
            whole, base, sum_ = writer.unique("greatest"), writer.unique("base"), writer.unique("total")
            writer.define(whole, f"tl.max({high}, axis=0)", maximum.node)
            writer.define(base, softmax_base(whole), maximum.node)
            writer.define(sum_, f"tl.sum({low} * {exponential_below(high, base)}, axis=0)", total.node)
        writer.bind_name(maximum, name(whole))
        writer.bind_name(total, name(sum_))

    return Accumulator(start, step, end)


def _welford_accumulator(writer: KernelWriter, loop: Dim, parts: list[Reduction]) -> Accumulator:
    """Return the accumulator of the mean and the squared deviations, by Welford's algorithm."""
    arg, node = parts[0].args[0], parts[0].node
    over = frozenset(parts[0].over)
    zero = Constant(arg.dtype, node, frozenset(), 0.0)
    mean, first = _new_accumulator(writer, "running_mean", arg, loop, zero)
    squares, second = _new_accumulator(writer, "running_squares", arg, loop, zero)
    number, third = _new_accumulator(writer, "seen", arg, loop, zero)

    def step() -> None:
        element = writer.ref(arg)
        element = element if isinstance(element, ast.Name) else writer.assign(arg, element)
        element_text, mask = unparse(element), writer.mask(over)
        delta, share = writer.unique("delta"), writer.unique("share")
        writer.define(number, f"({mask}).to({triton_type(arg.dtype)})" if mask else "1.0", node, "+")
        gap = f"{element_text} - {mean}"
        writer.define(delta, f"tl.where({mask}, {gap}, 0.0)" if mask else gap, node)
        writer.define(share, f"{delta} / tl.maximum({number}, 1.0)" if mask else f"{delta} / {number}", node)
        writer.define(mean, share, node, "+")
        writer.define(squares, f"{delta} * ({delta} - {share})", node, "+")

    def end() -> None:
        results = [mean, squares]
        if loop.block > 1:
            results = [writer.unique("mean"), writer.unique("squares")]
            whole = f"tl.reduce(({mean}, {squares}, {number}), {_axis(writer, loop)}, combine_fn=welford)"
            writer.define((*results, "_"), whole, node)
        for part in parts:
            writer.bind_name(part, name(results[0] if part.part == 1 else results[1]))

    return Accumulator([first, second, third], step, end)


def _arg_accumulator(writer: KernelWriter, loop: Dim, value: Reduction) -> Accumulator:
    """Return the accumulator of the index of the greatest or least element."""
    elements, places = value.args
    helper = "arg_max" if value.kind == "argmax" else "arg_min"
    least = Constant(elements.dtype, value.node, frozenset(), identity(value.kind, elements.dtype))
    last = Constant(torch.int64, value.node, frozenset(), torch.iinfo(torch.int64).max)
    best, first = _new_accumulator(writer, "best", elements, loop, least)
    where, second = _new_accumulator(writer, "best_at", elements, loop, last)

    def step() -> None:
        expr = unparse(_masked(writer, elements, value.kind, frozenset(value.over)))
        at = unparse(writer.ref(places))
        several = any(d.block > 1 for d in writer.dims_of(places.axes))
        at = f"({at}).to(tl.int64)" if several else f"tl.full([], {at}, tl.int64)"
        writer.define((best, where), f"{helper}({best}, {where}, {expr}, {at})", value.node)

    def end() -> None:
        if loop.block == 1:
            writer.bind_name(value, name(where))
            return
        position = writer.unique("found")
        whole = f"tl.reduce(({best}, {where}), {_axis(writer, loop)}, combine_fn={helper})"
        writer.define(("_", position), whole, value.node)
        writer.bind_name(value, name(position))

    return Accumulator([first, second], step, end)


@dataclass(frozen=True)
class TileProduct:
    """A sum of products of tiles in float32: the `variable`, its shape `blocks`, and the `dtype` of the operands."""

    variable: str
    blocks: tuple[str, str]
    dtype: torch.dtype
    precision: Precision
    node: fx.Node

    def accumulator(
        self, writer: KernelWriter, tiles: Callable[[], tuple[ast.expr, ast.expr]], onto: str = ""
    ) -> Accumulator:
        """Return the accumulator of products of the tiles that `tiles` writes in each step.

        They are added to `onto`, by default the sum so far.
        """
        start = assign(self.variable, f"tl.zeros([{', '.join(self.blocks)}], tl.float32)", self.node)

        def step() -> None:
            left, right = tiles()
            product = dot(left, right, self.dtype, self.precision, onto or self.variable)
            writer.define(self.variable, product, self.node)

        return Accumulator([start], step, lambda: None)


def dot(left: ast.expr, right: ast.expr, dtype: torch.dtype, precision: Precision, onto: str = "") -> ast.expr:
    """Return the product of two tiles, added to `onto`."""
    how = f', input_precision="{precision}"' if dtype is torch.float32 else ""
    template = f"tl.dot(a, b{', onto' if onto else ''}{how})"
    return fill_template(template, {"a": left, "b": right, "onto": parse_expression(onto or "0")})


def weights_accumulator(
    writer: KernelWriter, block: str, scores: Callable[[], ast.expr], moderate: bool, nodes: tuple[fx.Node, fx.Node]
) -> Accumulator:
    """Return the accumulator of an online softmax over rows of tiles.

    It has `running_max` and `running_sum` of each row. Each step defines the `weights` of its scores, and the `scale`
    for results computed from earlier weights. `nodes` are the maximum and the sum.
    """
    row_max, row_sum = nodes
    start = [
        assign("running_max", f'tl.full([{block}], -float("inf"), tl.float32)'),
        assign("running_sum", f"tl.zeros([{block}], tl.float32)"),
    ]

    def step() -> None:
        expr = scores()
        if not isinstance(expr, ast.Name):
            writer.define("scores", expr, row_max)
            expr = name("scores")
        writer.define("higher", f"tl.maximum(running_max, tl.max({expr.id}, axis=1))", row_max)
        writer.define("base", softmax_base("higher"))
        writer.define("weights", exponentials_below(expr.id, "base", moderate), row_sum)
        writer.define("scale", exponential_below("running_max", "base"))
        writer.define("running_sum", "running_sum * scale + tl.sum(weights, axis=1)", row_sum)
        writer.define("running_max", "higher")

    return Accumulator(start, step, lambda: None)


LOG2_E = math.log2(math.e)


def softmax_base(maximum: str) -> str:
    """Return the base of exponents: the maximum, or 0 if all elements are -inf."""
    return f'tl.where({maximum} == -float("inf"), 0.0, {maximum})'


def exponential_below(exponent: str, base: str) -> str:
    """Return exp(exponent - base), for an exponent of at most `base`.

    It is a power of 2, because GPUs have an instruction for that. `tl.exp` takes more instructions, only for results
    that are negligible beside the 1 at the maximum.
    """
    return f"tl.exp2(({exponent} - {base}) * {LOG2_E!r})"


def exponentials_below(exponents: str, base: str, moderate: bool) -> str:
    """Return exp(exponents - base) for many exponents with a base for each row.

    `moderate` exponents take one multiplication and one addition each. The most negative float times 1.44 would
    overflow.
    """
    if not moderate:
        return exponential_below(exponents, f"{base}[:, None]")
    return f"tl.exp2({exponents} * {LOG2_E!r} - ({base} * {LOG2_E!r})[:, None])"
