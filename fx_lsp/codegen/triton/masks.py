"""The padding of loads: their values outside a mask are chosen so that reductions need no further masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import torch

from fx_lsp.codegen.ir.ops import SUB, Op, Scalar
from fx_lsp.codegen.ir.tile import Dim
from fx_lsp.codegen.ir.values import Axes, Compute, Constant, Load, Reduction, Scan, Value, values_of


def identity(kind: str, dtype: torch.dtype) -> Scalar:
    """Return the identity of a reduction of a kind."""
    if kind in ("sum", "var_mean"):
        return 0.0 if dtype.is_floating_point else 0
    if kind == "prod":
        return 1.0 if dtype.is_floating_point else 1
    least = kind in ("max", "argmax")
    if dtype.is_floating_point:
        return -math.inf if least else math.inf
    if dtype is torch.bool:
        return not least
    info = torch.iinfo(dtype)
    return info.min if least else info.max


def padding_value(value: Value, others: Mapping[int, float], ends: Callable[[Axes], bool]) -> float | None:
    """Return the value of an expression outside the mask, or None if it is unknown.

    `others` has the padding values of loads. They apply to loads over axes for which `ends` returns True.
    """
    values: dict[int, float | None] = {}
    for each in values_of([value]):
        if isinstance(each, Constant):
            values[id(each)] = float(each.value)
        elif isinstance(each, Load):
            values[id(each)] = others.get(id(each)) if ends(each.axes) else None
        elif isinstance(each, Compute):
            numbers = [values[id(a)] for a in each.args]
            stays = _shifts_to_extreme(each, numbers[0], ends)
            values[id(each)] = numbers[0] if stays else _fold(each.op, numbers)
        elif isinstance(each, Reduction) and ends(each.axes):
            values[id(each)] = _reduced(each.kind, values[id(each.args[0])])
        else:
            values[id(each)] = None
    return values[id(value)]


def _shifts_to_extreme(value: Compute, padding: float | None, ends: Callable[[Axes], bool]) -> bool:
    """Return True if a value subtracts the maximum of elements from them, with -inf as padding, or likewise the
    minimum.

    The padding then stays infinite. If all elements are infinite, the difference is NaN everywhere.
    """
    extremes = {-math.inf: "max", math.inf: "min"}
    if value.op is not SUB or padding not in extremes:
        return False
    element, extreme = value.args
    is_extreme = isinstance(extreme, Reduction) and extreme.kind == extremes[padding] and extreme.args == (element,)
    return is_extreme and not ends(extreme.axes)


def _fold(op: Op, numbers: Sequence[float | None]) -> float | None:
    """Compute an operation of numbers. Returns None if an argument or the result is unknown."""
    if op.is_cast:
        return numbers[0]
    if op.number is None or any(n is None for n in numbers):
        return None
    try:
        return op.number(*numbers)
    except (ArithmeticError, ValueError):
        return None


def _reduced(kind: str, value: float | None) -> float | None:
    """Return the reduction of many copies of a number if it equals that number, else None."""
    same = {"max": True, "min": True, "sum": value in (0.0, math.inf, -math.inf), "prod": value in (0.0, 1.0)}
    return value if same.get(kind, False) else None


def covers_mask(masked: Callable[[Axes], list[Dim]], over: Axes) -> Callable[[Axes], bool]:
    """Return a function: whether the mask of given axes is false wherever that of a reduction is."""
    dims = masked(over)
    return lru_cache(lambda axes: any(d in dims for d in masked(axes)))


def load_padding(values: Sequence[Value], masked: Callable[[Axes], list[Dim]]) -> dict[int, float]:
    """Return the padding value of each load that a reduction needs."""
    reductions = [v for v in values if isinstance(v, (Reduction, Scan)) and masked(frozenset(v.over))]
    loads: dict[int, Load] = {}
    stack: list[Value] = [a for r in reductions for a in r.inputs]
    seen: set[int] = set()
    while stack:
        value = stack.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, Load):
            if masked(value.axes):
                loads[id(value)] = value
        elif not isinstance(value, Reduction):
            stack.extend(value.inputs)
    padding = dict.fromkeys(loads, 0.0)

    reduced = [
        (r.inputs[0], covers_mask(masked, frozenset(r.over)), float(identity(r.kind, r.inputs[0].dtype)))
        for r in reductions
        if isinstance(r, Reduction)
    ]

    def met(others: Mapping[int, float]) -> int:
        return sum(padding_value(value, others, ends) == neutral for value, ends, neutral in reduced)

    for key in padding:
        dtype = loads[key].dtype
        choices = (0.0, -math.inf, math.inf) if dtype.is_floating_point else (0.0,)
        padding[key] = max(choices, key=lambda c: met({**padding, key: c}))
    return {k: v if loads[k].dtype.is_floating_point else int(v) for k, v in padding.items()}
