"""How reductions are written: at once where a program holds all elements, else with accumulators in a loop."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import fx

from fx_lsp.codegen.ir.text import filled, name, unparsed
from fx_lsp.codegen.ir.tile import Dim
from fx_lsp.codegen.ir.values import Axes, Compute, Constant, Reduction, Scalar, Scan, Value, triton_type
from fx_lsp.codegen.triton.expressions import Writing
from fx_lsp.codegen.triton.helpers import helpers_in
from fx_lsp.codegen.triton.masks import at_end, ends_of, identity

_CALLS = {
    "sum": "tl.sum(a, {})",
    "min": "tl.reduce(a, {}, combine_fn=nan_min)",
    "max": "tl.reduce(a, {}, combine_fn=nan_max)",
    "prod": "tl.reduce(a, {}, combine_fn=product)",
}
_COMBINING = ("nan_max", "nan_min", "product")
_STEPS = {
    "sum": "a + b",
    "max": "nan_max(a, b)",
    "min": "nan_min(a, b)",
    "prod": "a * b",
}


# at once


def _masked(emitter: Writing, value: Value, kind: str, over: Axes) -> ast.expr:
    """The elements of a value, and what changes nothing where there are none."""
    expr = emitter.ref(value)
    neutral = identity(kind, value.dtype)
    if at_end(value, emitter.others, ends_of(emitter.masked_dims, over)) == float(neutral):
        return expr
    mask = emitter.mask(over)
    if not mask:
        return expr
    shown = emitter.ref(Constant(value.dtype, None, frozenset(), neutral))
    return filled("tl.where(m, a, i)", {"m": filled(mask, {}), "a": expr, "i": shown})


def _axis(emitter: Writing, dim: Dim) -> str:
    return f"axis={emitter.place(dim)}" + (", keep_dims=True" if len(emitter.shaped) == 2 else "")


def _spread(emitter: Writing, value: Value, dim: Dim, expr: ast.expr) -> ast.expr:
    """`expr` with an element for each of the dimension."""
    if dim in emitter.dims_of(value.axes):
        return expr
    return filled("tl.broadcast_to(a, s)", {"a": expr, "s": filled(emitter.tile_shape(value.axes, dim), {})})


def _dim_of(emitter: Writing, value: Reduction | Scan) -> Dim:
    return next(d for d in emitter.tile.dims if any(a in d.axes for a in value.over))


def immediate(emitter: Writing, value: Reduction) -> ast.expr:
    """A reduction of elements that a program holds at once."""
    dim = _dim_of(emitter, value)
    over = frozenset(value.over)
    if value.kind in ("argmax", "argmin"):
        return _winner(emitter, value, dim)
    arg = _spread(emitter, value.args[0], dim, _masked(emitter, value.args[0], value.kind, over))
    call = _CALLS[value.kind]
    if value.kind in ("max", "min") and (_only_shifts(emitter, value) or not value.dtype.is_floating_point):
        call = f"tl.{value.kind}(a, {{}})"
    emitter.need(*(h for h in _COMBINING if h in call))
    return filled(call.format(_axis(emitter, dim)), {"a": arg})


def _only_shifts(emitter: Writing, value: Reduction) -> bool:
    """Whether a maximum is only subtracted from what it is the maximum of, where NaN shows anyway."""
    users = [v for v in emitter.values if value in v.inputs]
    return all(
        isinstance(u, Compute) and u.template == "a - b" and u.args == (value.args[0], value) for u in users
    ) and not any(s.value is value for s in emitter.stores)


def _winner(emitter: Writing, value: Reduction, dim: Dim) -> ast.expr:
    helper = "arg_max" if value.kind == "argmax" else "arg_min"
    emitter.need(helper)
    elements, places = value.args
    values = _spread(emitter, elements, dim, _masked(emitter, elements, value.kind, frozenset(value.over)))
    where = filled(
        "tl.broadcast_to((a).to(tl.int64), s)",
        {"a": emitter.ref(places), "s": filled(emitter.tile_shape(elements.axes, dim), {})},
    )
    call = filled(f"tl.reduce((a, b), {_axis(emitter, dim)}, combine_fn={helper})", {"a": values, "b": where})
    variable = emitter.unique("found")
    emitter.line(f"_, {variable} = {unparsed(call)}", value.node)
    return name(variable)


def scanned(emitter: Writing, value: Scan) -> ast.expr:
    """A running sum or product: of elements that a program holds at once, or on from those of the steps before."""
    dim = _dim_of(emitter, value)
    arg = _spread(emitter, value.arg, dim, emitter.ref(value.arg))
    if dim.role != "loop":
        return filled(f"tl.{value.kind}(a, axis={emitter.place(dim)})", {"a": arg})
    kind, sign, neutral = ("sum", "+", 0) if value.kind == "cumsum" else ("prod", "*", 1)
    before = emitter.unique("before")
    others = Value(value.dtype, None, frozenset(a for a in value.axes if dim not in emitter.dims_of(frozenset({a}))))
    shape = emitter.tile_shape(others.axes) if len(emitter.shaped) > 1 else "[]"
    emitter.ahead(f"{before} = tl.full({shape}, {neutral}, {triton_type(value.dtype)})", value.node)
    element = arg if isinstance(arg, ast.Name) else emitter.assign(value.arg, arg)
    call = filled(f"tl.{value.kind}(a, axis={emitter.place(dim)}) {sign} b", {"a": element, "b": name(before)})
    running = emitter.assign(value, call)
    emitter.need(*(h for h in _COMBINING if h in _CALLS[kind]))
    step = unparsed(filled(_CALLS[kind].format(_axis(emitter, dim)), {"a": element}))
    emitter.line(f"{before} {sign}= {step}", value.node)
    return running


# in a loop


def online_pairs(values: Iterable[Value], accumulated: Callable[[Value], bool]) -> dict[int, Reduction]:
    """Sums of exponentials whose maximum is subtracted, each with that maximum: both can be had in one loop."""
    found: dict[int, Reduction] = {}
    for value in values:
        if not (isinstance(value, Reduction) and value.kind == "sum" and accumulated(value)):
            continue
        power = value.args[0]
        if not (isinstance(power, Compute) and power.template == "tl.exp(a)"):
            continue
        shifted = power.args[0]
        if not (isinstance(shifted, Compute) and shifted.template == "a - b"):
            continue
        element, most = shifted.args
        if isinstance(most, Reduction) and most.kind == "max" and most.args == (element,) and most.over == value.over:
            found[id(value)] = most
    return found


def depths(
    values: Iterable[Value], pairs: Mapping[int, Reduction], accumulated: Callable[[Value], bool]
) -> dict[int, int]:
    """How many loops have to be over before a value is known."""
    found: dict[int, int] = {}
    for value in values:
        if id(value) in pairs:
            found[id(value)] = found[id(pairs[id(value)])]
        else:
            found[id(value)] = max((found[id(i)] for i in value.inputs), default=0) + int(accumulated(value))
    return found


@dataclass(frozen=True)
class Accumulator:
    """Reductions that build up together: lines before the loop, in it, and what follows it."""

    node: fx.Node | None
    start: list[str]
    step: Callable[[], list[str]]
    end: Callable[[], None]


def accumulators(
    emitter: Writing, loop: Dim, reductions: Sequence[Reduction], pairs: Mapping[int, Reduction]
) -> list[Accumulator]:
    """How to build up reductions in one loop over a dimension."""
    found: list[Accumulator] = []
    paired = {id(pairs[id(r)]): r for r in reductions if id(r) in pairs}
    several: dict[tuple[str, int], list[Reduction]] = {}
    for reduction in reductions:
        if id(reduction) in pairs:
            continue
        if id(reduction) in paired:
            found.append(_online(emitter, loop, reduction, paired[id(reduction)]))
        elif reduction.kind in ("var_mean", "argmax", "argmin"):
            several.setdefault((reduction.kind, id(reduction.args[0])), []).append(reduction)
        else:
            found.append(_plain(emitter, loop, reduction))
    for (kind, _), parts in several.items():
        found.append(_welford(emitter, loop, parts) if kind == "var_mean" else _best(emitter, loop, parts[0]))
    return found


def _fresh(emitter: Writing, wish: str, value: Value, loop: Dim, start: Scalar, dtype: torch.dtype) -> tuple[str, str]:
    """A variable for an accumulator, and the line that begins it."""
    variable = emitter.unique(wish)
    text = unparsed(emitter.ref(Constant(dtype, None, frozenset(), start)))
    if not emitter.shaped or emitter.tile_shape(value.axes, loop) == "[]":
        return variable, f"{variable} = tl.full([], {text}, {triton_type(dtype)})"
    shape = emitter.tile_shape(value.axes, loop)
    if not start and start is not False:
        return variable, f"{variable} = tl.zeros({shape}, {triton_type(dtype)})"
    return variable, f"{variable} = tl.full({shape}, {text}, {triton_type(dtype)})"


def _wish(emitter: Writing, value: Reduction) -> str:
    variable = emitter.naming.variable(value.node) if value.node is not None else None
    return variable or {"sum": "total", "max": "most", "min": "least", "prod": "product_"}.get(value.kind, value.kind)


def _plain(emitter: Writing, loop: Dim, value: Reduction) -> Accumulator:
    arg = value.args[0]
    variable, start = _fresh(
        emitter, f"{_wish(emitter, value)}_acc", arg, loop, identity(value.kind, arg.dtype), arg.dtype
    )

    def step() -> list[str]:
        expr = _masked(emitter, arg, value.kind, frozenset(value.over))
        if value.kind == "sum":
            return [f"{variable} += {unparsed(expr)}"]
        emitter.need(*helpers_in(_STEPS[value.kind]))
        return [f"{variable} = {unparsed(filled(_STEPS[value.kind], {'a': name(variable), 'b': expr}))}"]

    def end() -> None:
        if loop.block == 1:
            emitter.know(value, name(variable))
            return
        call = _CALLS[value.kind]
        emitter.need(*(h for h in _COMBINING if h in call))
        emitter.assign(value, filled(call.format(_axis(emitter, loop)), {"a": name(variable)}))

    return Accumulator(value.node, [start], step, end)


GROUP = 16
"""How many neighbours an online sum takes together. In a row, the groups each build up their own: threads that hold
different ones need not wait for each other in every step."""


def _online(emitter: Writing, loop: Dim, most: Reduction, total: Reduction) -> Accumulator:
    """The maximum, and the sum of exponentials of what lies below it, in one loop."""
    arg = most.args[0]
    high, low = emitter.unique("running_max"), emitter.unique("running_sum")
    block, axis = loop.block > 1, _axis(emitter, loop)
    groups = f"{loop.block_name} // {GROUP}" if block and len(emitter.shaped) == 1 else ""
    dims = emitter.dims_of(arg.axes)
    kept = ", ".join(d.block_name if d in dims and d is not loop else "1" for d in emitter.shaped)
    shape = kept if len(emitter.shaped) > 1 else groups
    start = [
        f'{high} = tl.full([{shape}], -float("inf"), {triton_type(arg.dtype)})',
        f"{low} = tl.full([{shape}], 0.0, {triton_type(arg.dtype)})",
    ]

    def step() -> list[str]:
        expr = _masked(emitter, arg, "max", frozenset(most.over))
        element = unparsed(expr if isinstance(expr, ast.Name) else emitter.assign(arg, expr))
        higher, base = emitter.unique("higher"), emitter.unique("base")
        grouped, along, beside, lines = element, axis, base, list[str]()
        if groups:
            grouped, along, beside = emitter.unique("grouped"), "axis=1", f"{base}[:, None]"
            lines = [f"{grouped} = tl.reshape({element}, [{groups}, {GROUP}])"]
        powers = power(grouped, beside)
        return [
            *lines,
            f"{higher} = tl.maximum({high}, {f'tl.max({grouped}, {along})' if block else element})",
            f"{base} = {reference(higher)}",
            f"{low} = {low} * {power(high, base)} + {f'tl.sum({powers}, {along})' if block else powers}",
            f"{high} = {higher}",
        ]

    def end() -> None:
        whole, sum_ = high, low
        if groups:
            whole, base, sum_ = emitter.unique("greatest"), emitter.unique("base"), emitter.unique("total")
            emitter.line(f"{whole} = tl.max({high}, axis=0)", most.node)
            emitter.line(f"{base} = {reference(whole)}", most.node)
            emitter.line(f"{sum_} = tl.sum({low} * {power(high, base)}, axis=0)", total.node)
        emitter.know(most, name(whole))
        emitter.know(total, name(sum_))

    return Accumulator(most.node, start, step, end)


def _welford(emitter: Writing, loop: Dim, parts: list[Reduction]) -> Accumulator:
    """Mean and squared deviations, by Welford's algorithm."""
    arg, node = parts[0].args[0], parts[0].node
    over = frozenset(parts[0].over)
    mean, first = _fresh(emitter, "running_mean", arg, loop, 0.0, arg.dtype)
    squares, second = _fresh(emitter, "running_squares", arg, loop, 0.0, arg.dtype)
    number, third = _fresh(emitter, "seen", arg, loop, 0.0, arg.dtype)

    def step() -> list[str]:
        element = emitter.ref(arg)
        element = element if isinstance(element, ast.Name) else emitter.assign(arg, element)
        shown, mask = unparsed(element), emitter.mask(over)
        delta, share = emitter.unique("delta"), emitter.unique("share")
        if not mask:
            start = [f"{number} += 1.0", f"{delta} = {shown} - {mean}", f"{share} = {delta} / {number}"]
        else:
            start = [
                f"{number} += ({mask}).to({triton_type(arg.dtype)})",
                f"{delta} = tl.where({mask}, {shown} - {mean}, 0.0)",
                f"{share} = {delta} / tl.maximum({number}, 1.0)",
            ]
        return [*start, f"{mean} += {share}", f"{squares} += {delta} * ({delta} - {share})"]

    def end() -> None:
        known = [mean, squares]
        if loop.block > 1:
            emitter.need("welford")
            axis = _axis(emitter, loop)
            known = [emitter.unique("mean"), emitter.unique("squares")]
            emitter.line(
                f"{known[0]}, {known[1]}, _ = tl.reduce(({mean}, {squares}, {number}), {axis}, combine_fn=welford)",
                node,
            )
        for part in parts:
            emitter.know(part, name(known[0] if part.part == 1 else known[1]))

    return Accumulator(node, [first, second, third], step, end)


def _best(emitter: Writing, loop: Dim, value: Reduction) -> Accumulator:
    """The place of the greatest or least element."""
    elements, places = value.args
    helper = "arg_max" if value.kind == "argmax" else "arg_min"
    best, first = _fresh(emitter, "best", elements, loop, identity(value.kind, elements.dtype), elements.dtype)
    where, second = _fresh(emitter, "best_at", elements, loop, torch.iinfo(torch.int64).max, torch.int64)

    def step() -> list[str]:
        emitter.need(helper)
        expr = unparsed(_masked(emitter, elements, value.kind, frozenset(value.over)))
        at = unparsed(emitter.ref(places))
        several = any(d.block > 1 for d in emitter.dims_of(places.axes))
        at = f"({at}).to(tl.int64)" if several else f"tl.full([], {at}, tl.int64)"
        return [f"{best}, {where} = {helper}({best}, {where}, {expr}, {at})"]

    def end() -> None:
        if loop.block == 1:
            emitter.know(value, name(where))
            return
        found = emitter.unique("found")
        emitter.line(
            f"_, {found} = tl.reduce(({best}, {where}), {_axis(emitter, loop)}, combine_fn={helper})", value.node
        )
        emitter.know(value, name(found))

    return Accumulator(value.node, [first, second], step, end)


LOG2_E = math.log2(math.e)


def reference(maximum: str) -> str:
    """What exponents are taken from: the maximum, or 0 where there is nothing but -inf."""
    return f'tl.where({maximum} == -float("inf"), 0.0, {maximum})'


def power(exponent: str, base: str) -> str:
    """e to the power of what an exponent, at most `base`, lies below it.

    By powers of 2, which GPUs have an instruction for: `tl.exp` takes further ones, for results so small that they
    count for nothing beside the 1 at the maximum.
    """
    return f"tl.exp2(({exponent} - {base}) * {LOG2_E!r})"


def powers(exponents: str, base: str, moderate: bool) -> str:
    """The same for many exponents that have the base of their row: one multiplication and addition for each, where they
    are `moderate`; the most negative number there is, times 1.44, would be none any more."""
    if not moderate:
        return power(exponents, f"{base}[:, None]")
    return f"tl.exp2({exponents} * {LOG2_E!r} - ({base} * {LOG2_E!r})[:, None])"
