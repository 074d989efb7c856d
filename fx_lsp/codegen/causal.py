"""Which tiles of scores a causal mask or a window leaves: from where to where a loop over them has to go."""

from __future__ import annotations

from dataclasses import dataclass

import sympy

from fx_lsp.codegen.scores import Shapes
from fx_lsp.codegen.text import size_text
from fx_lsp.codegen.values import Compute, Condition, Constant, Test, Value, values_of


def bounds(value: Value, m: sympy.Symbol, n: sympy.Symbol, fixed: str, shapes: Shapes) -> tuple[str, str]:
    """From where to where a loop over n (with m fixed) or over m has to go, as far as masks of both ends say."""
    above, below = causal_offset(value, m, n), causal_offset(value, n, m)  # n <= m + above, m <= n + below
    over, block, size = ("ROWS", "COLS", shapes.n) if fixed == "m" else ("COLS", "ROWS", shapes.m)
    first, last = (below, above) if fixed == "m" else (above, below)
    start, end = "0", size_text(size)
    if first is not None:
        start = f"tl.program_id(0) * {over}{plus(-first)}"
        start = f"tl.maximum({start}, 0)" if first > 0 else start
        start = f"{start} // {block} * {block}"
    if last is not None:
        end = f"tl.minimum({end}, (tl.program_id(0) + 1) * {over}{plus(last)})"
    return start, end


@dataclass(frozen=True)
class Mask:
    """What a choice keeps where n <= m + `offset`, and what is there instead elsewhere."""

    kept: Value
    other: Constant
    offset: int


def mask_of(value: Value, m: sympy.Symbol, n: sympy.Symbol) -> Mask | None:
    """The causal mask that a value is behind, or None for any other value."""
    if not (isinstance(value, Compute) and value.template == "tl.where(a, b, c)"):
        return None
    condition, yes, no = value.args
    for kept, other, holds in ((no, yes, True), (yes, no, False)):
        if isinstance(condition, Test) and len(condition.guard) == 1 and isinstance(other, Constant):
            offset = _above(condition, m, n, holds)
            if offset is not None:
                return Mask(kept, other, offset)
    return None


def crossed(offset: int, fixed: str) -> str:
    """Whether the bound of a causal mask goes through the tile at `start`, or may do so."""
    if fixed == "m":
        return f"start + COLS > tl.program_id(0) * ROWS{plus(offset)}"
    return f"start < (tl.program_id(0) + 1) * COLS{plus(-offset)}"


def plus(offset: int) -> str:
    """A number that is added, if there is one, as text."""
    return f" + {offset}" if offset > 0 else f" - {-offset}" if offset < 0 else ""


def causal_offset(value: Value, m: sympy.Symbol, n: sympy.Symbol) -> int | None:
    """The k for which everything is masked where n > m + k, or None where no mask says so."""
    for choice in values_of([value]):
        if not (isinstance(choice, Compute) and choice.template == "tl.where(a, b, c)"):
            continue
        condition, yes, no = choice.args
        for masked, holds in ((yes, True), (no, False)):
            if isinstance(masked, Constant) and masked.value in (float("-inf"), 0.0):
                found = _above(condition, m, n, holds)
                if found is not None and (masked.value != 0.0 or choice is value):
                    return found
    return None


def _above(condition: Value, m: sympy.Symbol, n: sympy.Symbol, holds: bool) -> int | None:
    """The k for which a condition is `holds` wherever n > m + k, or None."""
    if isinstance(condition, Test):
        known = [k for c in condition.guard if (k := _beyond(c, m, n, holds)) is not None]
        return min(known, default=None) if not holds or len(condition.guard) == 1 else None
    if not isinstance(condition, Compute):
        return None
    if condition.template == "not_(a)":
        return _above(condition.args[0], m, n, not holds)
    if condition.template in ("a & b", "a | b"):
        if (condition.template == "a & b") == holds:
            found = [_above(a, m, n, holds) for a in condition.args if not _always(a)]
            return found[0] if len(found) == 1 else None
        known = [k for a in condition.args if (k := _above(a, m, n, holds)) is not None]
        return min(known, default=None)
    return None


def _beyond(condition: Condition, m: sympy.Symbol, n: sympy.Symbol, holds: bool) -> int | None:
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
