"""Indices of elements: integer expressions over the axes of a kernel, and their ranges.

Expressions are sympy's, so a size may be a symbol. Division and remainder are `FloorDiv` and `Mod`. They stay opaque
unless the ranges of the axes decide them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import sympy

Index: TypeAlias = Any
"""A sympy expression. Sympy has no types of its own."""

Coords: TypeAlias = tuple[Index, ...]

RESERVED_NAMES = frozenset(
    (
        *("M", "N", "K", "BLOCK", "ROWS", "COLS", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"),
        *("start", "rows", "cols", "row", "outer", "batch", "k", "acc"),
        *("pid_m", "pid_n", "num_m", "num_n", "tile", "within"),
        *("mask", "rows_mask", "cols_mask", "outer_mask", "k_mask"),
        *("ctx", "device", "launch", "meta", "multiprocessors", "tl", "torch", "triton", "workspace", "aligned"),
    )
)
"""The names that kernels and the code around them use for their own sizes and variables."""

ZERO: Index = sympy.Integer(0)
ONE: Index = sympy.Integer(1)


class FloorDiv(sympy.Function):
    """The quotient of two integers, rounded down."""

    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, *args: Index) -> Index | None:
        left, right = args
        return left // right if left.is_Integer and right.is_Integer and right != 0 else None


class Mod(sympy.Function):
    """The remainder of `FloorDiv`. It is never negative if the divisor is positive."""

    nargs = (2,)
    is_integer = True
    is_nonnegative = True

    @classmethod
    def eval(cls, *args: Index) -> Index | None:
        left, right = args
        return left % right if left.is_Integer and right.is_Integer and right != 0 else None


class TrueDiv(sympy.Function):
    """The quotient of two integers, as a float."""

    nargs = (2,)


class Space:
    """The axes of a kernel and other unknowns. Each ranges from 0 to its size, exclusive."""

    def __init__(self) -> None:
        self.sizes: dict[sympy.Symbol, Index] = {}

    def axis(self, name: str, size: Any) -> sympy.Symbol:
        """Return a new unknown that ranges from 0 to `size`, exclusive."""
        names = {s.name for s in self.sizes}
        unique = next(n for n in (name, *(f"{name}{i}" for i in range(len(names) + 1))) if n not in names)
        symbol = sympy.Symbol(unique, integer=True, nonnegative=True)
        self.sizes[symbol] = expression(size)
        return symbol

    def bounds(self, index: Index) -> tuple[Index, Index] | None:
        """Return the least and the greatest value of `index`, or None if they are unknown."""
        low, high = ZERO, ZERO
        for term in sympy.Add.make_args(index):
            term_bounds = self._term_bounds(term)
            if term_bounds is None:
                return None
            low, high = low + term_bounds[0], high + term_bounds[1]
        return low, high

    def _term_bounds(self, term: Index) -> tuple[Index, Index] | None:
        coefficient, low, high = ONE, ONE, ONE
        unknown = False
        for factor in sympy.Mul.make_args(term):
            if factor in self.sizes or isinstance(factor, (FloorDiv, Mod)):
                if unknown:
                    return None
                unknown = True
                factor_bounds = self._factor_bounds(factor)
                if factor_bounds is None:
                    return None
                low, high = factor_bounds
            elif factor.free_symbols & self.sizes.keys():
                return None
            else:
                coefficient *= factor
        if coefficient.is_nonnegative:
            return coefficient * low, coefficient * high
        return (coefficient * high, coefficient * low) if coefficient.is_nonpositive else None

    def _factor_bounds(self, factor: Index) -> tuple[Index, Index] | None:
        if factor in self.sizes:
            return ZERO, self.sizes[factor] - 1
        inner, divisor = factor.args
        if isinstance(factor, Mod):
            return ZERO, divisor - 1
        inner_bounds = self.bounds(inner)
        if inner_bounds is None or not all(isinstance(v, sympy.Integer) for v in (*inner_bounds, divisor)):
            return None
        return inner_bounds[0] // divisor, inner_bounds[1] // divisor

    def within(self, index: Index, size: Index) -> bool:
        """Return True if `index` is known to be in [0, size)."""
        bounds = self.bounds(index)
        return bounds is not None and bool(bounds[0].is_nonnegative) and bool((size - 1 - bounds[1]).is_nonnegative)

    def split(self, index: Index, divisor: Index) -> tuple[Index, Index]:
        """Return the quotient and remainder of `index` and `divisor`, as simple as the ranges allow."""
        if divisor == 1:
            return index, ZERO
        whole: Index = ZERO
        rest: Index = ZERO
        for term in sympy.Add.make_args(sympy.expand(index)):
            quotient = sympy.cancel(term / divisor) if term.has(sympy.Symbol) else term / divisor
            if sympy.fraction(quotient)[1] == 1:
                whole += quotient
            elif isinstance(term, sympy.Integer) and isinstance(divisor, sympy.Integer):
                whole, rest = whole + term // divisor, rest + term % divisor
            else:
                rest += term
        turns = self._turns(rest, divisor)  # Triton rounds towards 0, so nothing negative may be divided
        whole, rest = whole - turns, rest + turns * divisor
        if self.within(rest, divisor):
            return whole, rest
        if isinstance(rest, Mod) and _divides(divisor, rest.args[1]):
            inner, modulus = rest.args
            return whole + Mod(FloorDiv(inner, divisor), modulus / divisor), Mod(inner, divisor)
        if isinstance(rest, FloorDiv):
            inner, by = rest.args
            return whole + FloorDiv(inner, by * divisor), Mod(rest, divisor)
        return whole + FloorDiv(rest, divisor), Mod(rest, divisor)

    def _turns(self, index: Index, divisor: Index) -> Index:
        """Return the number of divisors to add to an index so that it is certainly not negative."""
        bounds = self.bounds(index)
        if bounds is None or bounds[0].is_nonnegative:
            return ZERO
        least, turns = bounds[0], sympy.cancel(-bounds[0] / divisor)
        if least.is_Integer and divisor.is_Integer:
            return -(least // divisor)
        return turns if sympy.fraction(turns)[1] == 1 else -least

    def coordinates(self, index: Index, shape: Sequence[Index]) -> Coords:
        """Return the coordinates of the element at `index` of a contiguous tensor."""
        index = rejoin_divisions(index)
        coordinates: list[Index] = []
        for size in reversed(shape[1:]):
            index, inner = self.split(index, size)
            coordinates.append(inner)
        return (*([index] if shape else []), *reversed(coordinates))


def rejoin_divisions(index: Index) -> Index:
    """Return an index with quotients and remainders of the same division recombined."""
    index, before = sympy.expand(index), None
    while index != before:
        before = index
        for rest in sorted(index.atoms(Mod), key=str):
            inner, divisor = rest.args
            share, whole = index.coeff(rest), _quotient(inner, divisor)
            if share != 0 and sympy.expand(index.coeff(whole) - share * divisor) == 0:
                index = sympy.expand(index + share * (inner - rest) - share * divisor * whole)
    return index


def join_axes(index: Index, axes: Coords, sizes: Coords, whole: sympy.Symbol) -> Index:
    """Return an index in terms of `whole`, the flat index of some axes. Returns it unchanged if it uses them
    separately.
    """
    share = coefficient(index, axes[-1])
    if share is None or share == 0:
        return index
    separate = linear(axes, contiguous_strides(sizes))
    remainder = sympy.expand(index - share * separate)
    return index if remainder.free_symbols & set(axes) else sympy.expand(remainder + share * whole)


def _quotient(index: Index, divisor: Index) -> Index:
    """Return `index` divided by `divisor`, in the form of `Space.split` without known ranges."""
    if isinstance(index, FloorDiv):
        inner, by = index.args
        return FloorDiv(inner, by * divisor)
    return FloorDiv(index, divisor)


def expression(value: Any) -> Index:
    """Return an int, a symbolic int of torch, or a sympy expression as an expression.

    Its symbols have the names of the shape environment (`plain`), except those reserved for kernels.
    """
    node = getattr(value, "node", None)
    if node is None:
        return sympy.sympify(value)
    plain = getattr(node.shape_env, "plain", None)
    expr = node.expr if plain is None else plain(node.expr)
    expr = expr.replace(
        lambda e: type(e).__name__ in _SIZE_FUNCTIONS, lambda e: _SIZE_FUNCTIONS[type(e).__name__](*e.args)
    )
    return expr.xreplace({s: size_symbol(s.name) for s in expr.free_symbols})


_SIZE_FUNCTIONS = {
    **{"FloorDiv": FloorDiv, "CleanDiv": FloorDiv, "IntTrueDiv": TrueDiv},
    **{"Mod": Mod, "PythonMod": Mod, "Max": sympy.Max, "Min": sympy.Min},
    **{"ToFloat": lambda size: size, "FloatTrueDiv": TrueDiv},
}
"""Maps the names of torch's functions of sizes to the functions here."""


def size_symbol(name: str) -> sympy.Symbol:
    """Return the symbol of a size that is known only at launch."""
    return sympy.Symbol(f"size_{name}" if name in RESERVED_NAMES else name, integer=True, positive=True)


def is_renamed(size: sympy.Symbol) -> bool:
    """Return True if a size was renamed because kernels use the name that the user gave it."""
    return size.name.removeprefix("size_") in RESERVED_NAMES


def contiguous_strides(shape: Sequence[Index]) -> Coords:
    """Return the strides, in elements, of a contiguous tensor."""
    strides: list[Index] = []
    stride = ONE
    for size in reversed(shape):
        strides.append(stride)
        stride = stride * size
    return tuple(reversed(strides))


def linear(coords: Iterable[Index], strides: Iterable[Index]) -> Index:
    """Return the offset, in elements, of the element at `coords`."""
    return sum((c * s for c, s in zip(coords, strides, strict=True)), ZERO)


def count(shape: Iterable[Index]) -> Index:
    """Return the number of elements of a shape."""
    return reduce(lambda a, b: a * b, shape, ONE)


def power_of_two(value: int) -> int:
    """Return the least power of two that is at least `value`."""
    return 1 << max(value - 1, 0).bit_length()


def coefficient(index: Index, axis: sympy.Symbol) -> Index | None:
    """Return the slope of `index` along `axis`, or None if it is not constant."""
    expanded = sympy.expand(index)
    slope, rest = ZERO, ZERO
    for term in sympy.Add.make_args(expanded):
        if axis in term.free_symbols:
            slope += term / axis
        else:
            rest += term
    slope = sympy.cancel(slope) if slope.has(sympy.Pow) else slope
    return None if axis in slope.free_symbols else slope


def affine_parts(index: Index) -> list[Index]:
    """Return `index` and the dividends inside it. Apart from its divisions, each is linear in the axes."""
    parts = [index]
    for inner in index.atoms(FloorDiv, Mod):
        parts.append(inner.args[0])
    return parts


def size_hint(size: Index, hints: Mapping[str, int]) -> int:
    """Return a size as a number. Symbols have their values at capture, 64 if unknown."""
    if isinstance(size, sympy.Integer):
        return int(size)
    return int(size.xreplace({s: sympy.Integer(hints.get(s.name, 64)) for s in size.free_symbols}))


def _divides(divisor: Index, value: Any) -> bool:
    return sympy.fraction(sympy.cancel(value / divisor))[1] == 1
