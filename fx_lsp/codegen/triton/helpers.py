"""Helper functions for generated files: elementary functions that Triton lacks.

They use only `triton.language`, so they run on every target and under Triton's interpreter.
"""

from __future__ import annotations

from collections.abc import Collection

from fx_lsp.codegen.ir.scopes import names_from_outside
from fx_lsp.codegen.triton.special_functions import SPECIAL

_SOURCE = '''
@triton.jit
def nan_max(a, b):
    """The maximum of two numbers; NaN if either is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def nan_min(a, b):
    """The minimum of two numbers; NaN if either is NaN."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def product(a, b):
    return a * b


@triton.jit
def welford(mean_a, squares_a, count_a, mean_b, squares_b, count_b):
    """Combines the mean and the squared deviations of two sets of numbers."""
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / tl.maximum(count, 1.0))
    delta = mean_b - mean_a
    return mean_a + delta * share, squares_a + squares_b + delta * delta * count_a * share, count


@triton.jit
def arg_max(a, at_a, b, at_b):
    """The maximum and its index, the first of equals; NaN counts as the maximum."""
    first = (a > b) | ((a != a) & (b == b))
    same = (a == b) | ((a != a) & (b != b))
    first = first | (same & (at_a < at_b))
    return tl.where(first, a, b), tl.where(first, at_a, at_b)


@triton.jit
def arg_min(a, at_a, b, at_b):
    """The minimum and its index, the first of equals; NaN counts as the minimum."""
    first = (a < b) | ((a != a) & (b == b))
    same = (a == b) | ((a != a) & (b != b))
    first = first | (same & (at_a < at_b))
    return tl.where(first, a, b), tl.where(first, at_a, at_b)


@triton.jit
def not_(a):
    return a == 0


@triton.jit
def relu(a):
    """The positive part; NaN stays NaN."""
    return tl.where(a <= 0, 0, a).to(a.dtype)


@triton.jit
def sign(a):
    """-1, 0 or 1; 0 for NaN."""
    return (a > 0).to(a.dtype) - (a < 0).to(a.dtype)


@triton.jit
def trunc(a):
    """Rounded towards zero."""
    return tl.where(a < 0, tl.ceil(a), tl.floor(a))


@triton.jit
def round_even(a):
    """Rounded to the nearest integer, halves to the even one."""
    down = tl.floor(a)
    rest = a - down
    odd = down - 2.0 * tl.floor(down * 0.5)
    up = (rest > 0.5) | ((rest == 0.5) & (odd == 1.0))
    return tl.where(a == a + 0.0, tl.where(up, down + 1.0, down), a)


@triton.jit
def log1p(a):
    """log(1 + a), exact also for small a."""
    u = 1.0 + a
    exact = tl.log(u) - ((u - 1.0) - a) / u
    return tl.where(u == float("inf"), a, tl.where(u <= 0.0, tl.log(u), exact))


@triton.jit
def expm1(a):
    """exp(a) - 1, exact also for small a."""
    u = tl.exp(a)
    small = (u - 1.0) * (a / tl.log(u))
    away = (u - 1.0 == -1.0) | (u == float("inf"))
    return tl.where(u == 1.0, a, tl.where(away, u - 1.0, small))


@triton.jit
def tanh(a):
    """The hyperbolic tangent, exact also for small a."""
    if a.dtype.is_fp64():
        less = expm1(-2.0 * tl.abs(a))
        small = -less / (2.0 + less)
        small = tl.where(a < 0, -small, small)
    else:
        square = a * a
        tail = 0.133333333 + square * (-0.053968254 + square * 0.021869489)
        small = a * (1.0 + square * (-0.333333333 + square * tail))
    return tl.where(tl.abs(a) < 0.25, small, 1.0 - 2.0 / (tl.exp(2.0 * a) + 1.0))


@triton.jit
def sinh(a):
    """The hyperbolic sine, exact also for small a."""
    size = tl.abs(a)
    if a.dtype.is_fp64():
        more = expm1(size)
        small = 0.5 * (more + more / (more + 1.0))
        small = tl.where(a < 0, -small, small)
    else:
        square = a * a
        tail = 0.00833333333 + square * 0.000198412698
        small = a * (1.0 + square * (0.166666667 + square * tail))
    half = tl.exp(0.5 * size)
    large = 0.5 * half * half - 0.5 / (half * half)
    return tl.where(size < 0.5, small, tl.where(a < 0, -large, large))


@triton.jit
def asinh(a):
    """The inverse of sinh."""
    size = tl.abs(a)
    root = tl.sqrt(size * size + 1.0)
    found = tl.where(size > 1e8, tl.log(size) + 0.6931471805599453, log1p(size + size * size / (1.0 + root)))
    return tl.where(a < 0, -found, tl.where(a == 0, a, found))


@triton.jit
def acosh(a):
    """The inverse of cosh; NaN below 1."""
    less = a - 1.0
    found = log1p(less + tl.sqrt(tl.maximum(less, 0.0) * (a + 1.0)))
    found = tl.where(a > 1e8, tl.log(a) + 0.6931471805599453, found)
    return tl.where(a < 1.0, float("nan"), found)


@triton.jit
def atan(a):
    """The inverse of tan, by halving the angle twice."""
    size = tl.abs(a)
    flipped = size > 1.0
    x = tl.where(flipped, 1.0 / size, size)
    x = x / (1.0 + tl.sqrt(1.0 + x * x))
    x = x / (1.0 + tl.sqrt(1.0 + x * x))
    s = x * x
    tail = 0.1111111111 + s * (-0.0909090909 + s * 0.0769230769)
    series = x * (1.0 + s * (-0.3333333333 + s * (0.2 + s * (-0.1428571429 + s * tail))))
    angle = 4.0 * series
    angle = tl.where(flipped, 1.5707963267948966 - angle, angle)
    return tl.where(a < 0, -angle, tl.where(a == 0, a, angle))


@triton.jit
def atan2(y, x):
    """The angle of the point (x, y)."""
    both = (x == 0.0) & (y == 0.0)
    left = signbit(x)
    endless = (tl.abs(x) == float("inf")) & (tl.abs(y) == float("inf"))
    ratio = tl.where(endless, 1.0, tl.abs(y) / tl.where(both, 1.0, tl.abs(x)))
    angle = atan(ratio)
    angle = tl.where(left, 3.141592653589793 - angle, angle)
    angle = tl.where(signbit(y), -angle, angle)
    return tl.where((x != x) | (y != y), float("nan"), angle)


@triton.jit
def asin(a):
    """The inverse of sin; NaN outside of -1 to 1."""
    return 2.0 * atan(a / (1.0 + tl.sqrt((1.0 - a) * (1.0 + a))))


@triton.jit
def acos(a):
    """The inverse of cos; NaN outside of -1 to 1."""
    found = 2.0 * atan(tl.sqrt((1.0 - a) * (1.0 + a)) / (1.0 + a))
    return tl.where(a == -1.0, 3.141592653589793, found)


@triton.jit
def erfc(a):
    """1 - erf(a), with a continued fraction where the difference would cancel."""
    size = tl.abs(a)
    f = size + 20.0 / tl.maximum(size, 1.0)
    for k in range(39):
        f = size + (19.5 - 0.5 * k) / f
    far = tl.exp(-size * size) * 0.5641895835477563 / f
    return tl.where(size < 2.0, 1.0 - tl.erf(a), tl.where(a < 0, 2.0 - far, far))


@triton.jit
def one_plus_erf(a):
    """1 + erf(a) to within 1e-7: the logarithm of erfc is close to a polynomial."""
    size = tl.abs(a)
    p = 1.82445474e-05 - 8.58858527e-07 * size
    p = p * size - 1.66303915e-04
    p = p * size + 8.26907053e-04
    p = p * size - 2.14464474e-03
    p = p * size - 1.34429953e-04
    p = p * size + 2.79012583e-02
    p = p * size - 1.48378715e-01
    p = p * size - 9.18430209e-01
    p = p * size - 1.62790799
    far = tl.exp2(p * size)
    return tl.where(a < 0, far, 2.0 - far)


@triton.jit
def hypot(a, b):
    """sqrt(a * a + b * b) without overflow."""
    large = tl.maximum(tl.abs(a), tl.abs(b), propagate_nan=tl.PropagateNan.ALL)
    small = tl.minimum(tl.abs(a), tl.abs(b), propagate_nan=tl.PropagateNan.ALL)
    ratio = tl.where(large == 0.0, 0.0, small / large)
    found = large * tl.sqrt(1.0 + ratio * ratio)
    return tl.where((tl.abs(a) == float("inf")) | (tl.abs(b) == float("inf")), float("inf"), found)


@triton.jit
def signbit(a):
    """Whether the sign bit is set, as in -0.0."""
    if a.dtype.is_fp64():
        return a.to(tl.int64, bitcast=True) < 0
    elif a.dtype.is_fp32():
        return a.to(tl.int32, bitcast=True) < 0
    else:
        return a < 0


@triton.jit
def copysign(a, b):
    """The size of a with the sign of b."""
    return tl.where(signbit(b), -tl.abs(a), tl.abs(a))


@triton.jit
def floor_divide(a, b):
    """The quotient, rounded down."""
    if a.dtype.is_floating():
        left = fmod(a, b)
        quotient = (a - left) / b - tl.where((left != 0) & ((left < 0) != (b < 0)), 1.0, 0.0)
        whole = tl.floor(quotient)
        whole = tl.where(quotient - whole > 0.5, whole + 1.0, whole)
        return tl.where(b == 0, a / b, whole)
    else:
        quotient = a // b
        return quotient - ((quotient * b != a) & ((a < 0) != (b < 0))).to(quotient.dtype)


@triton.jit
def remainder(a, b):
    """The remainder of a / b, with the sign of b."""
    if a.dtype.is_floating():
        left = fmod(a, b)
        return tl.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)
    else:
        left = a - a // b * b
        return tl.where((left != 0) & ((left < 0) != (b < 0)), left + b, left)


@triton.jit
def fmod(a, b):
    """The remainder of a / b, with the sign of a."""
    if a.dtype.is_floating():
        left = tl.abs(a).to(tl.float64) % tl.abs(b).to(tl.float64)
        left = tl.where(tl.abs(b) == float("inf"), tl.abs(a), left.to(a.dtype))
        left = tl.where(tl.abs(a) == float("inf"), float("nan"), left)
        return tl.where(a < 0, -left, left)
    else:
        return a - a // b * b


@triton.jit
def pow(a, b):
    """a to the power of b."""
    size = tl.exp2(b.to(tl.float64) * tl.log2(tl.abs(a).to(tl.float64))).to(a.dtype)
    whole = tl.floor(b) == b
    odd = whole & (tl.abs(b) < 16777216.0) & (tl.floor(b * 0.5) * 2.0 != b)
    found = tl.where(signbit(a) & odd, -size, size)
    found = tl.where((a < 0) & (not_(whole)) & (a != -float("inf")), float("nan"), found)
    found = tl.where((a == -1.0) & (tl.abs(b) == float("inf")), 1.0, found)
    return tl.where((b == 0) | (a == 1.0), 1.0, found)


@triton.jit
def int_pow(a, b):
    """An integer power; 0 for negative exponents, except for bases 1 and -1."""
    odd = (b & 1) != 0
    found = a * 0 + 1
    below = tl.where(a == 1, found, tl.where(a == -1, tl.where(odd, -found, found), 0)).to(a.dtype)
    power, rest = a, b
    for _ in range(63):
        found = tl.where((rest & 1) != 0, found * power, found)
        power = power * power
        rest = rest >> 1
    return tl.where(b < 0, below, found)
'''


def _by_name() -> dict[str, str]:
    """Return the text of each helper function by name."""
    texts = [text for source in (_SOURCE, SPECIAL) for text in source.strip().split("\n\n\n")]
    return {text.removeprefix("@triton.jit\ndef ").partition("(")[0]: text for text in texts}


HELPERS: dict[str, str] = _by_name()
"""The text of each helper function by name."""


def with_needed(names: Collection[str]) -> list[str]:
    """Return the helper functions among names, with the helpers that these call, in order."""
    needed: set[str] = set()
    stack = [name for name in names if name in HELPERS]
    while stack:
        name = stack.pop()
        if name not in needed:
            needed.add(name)
            stack.extend(helpers_in(HELPERS[name]))
    return [name for name in HELPERS if name in needed]


def helpers_in(text: str) -> list[str]:
    """Return the helper functions that a Python text uses."""
    return [name for name in names_from_outside(text) if name in HELPERS]
