"""Helper functions for generated files: functions that neither Triton nor the library of the GPU has."""

from __future__ import annotations

from collections.abc import Collection

from fx_lsp.codegen.ir.scopes import names_from_outside

LIBRARY = "libdevice"
"""The module of the functions that the library of a GPU has, as files import it."""

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
def signbit(a):
    """Whether the sign bit is set, as in -0.0."""
    if a.dtype.is_floating():
        return libdevice.signbit(a) != 0
    else:
        return a < 0


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
        return libdevice.fmod(a, b)
    else:
        return a - a // b * b


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


@triton.jit
def digamma(a):
    """The derivative of lgamma: its asymptotic series, for small numbers moved by 10."""
    y = tl.where(a < 0, 1.0 - a, a)
    less = tl.zeros_like(y)
    for _ in range(10):
        near = y < 10.0
        less = less + tl.where(near, 1.0 / y, 0.0)
        y = tl.where(near, y + 1.0, y)
    r = 1.0 / (y * y)
    tail = r * (
        0.08333333333333333
        - r * (0.008333333333333333 - r * (0.003968253968253968 - r * 0.004166666666666667))
    )
    result = tl.where(y == float("inf"), y, tl.log(y) - 0.5 / y - tail - less)
    angle = 3.141592653589793 * (a - tl.floor(a + 0.5))
    mirrored = result - 3.141592653589793 * tl.cos(angle) / tl.sin(angle)
    result = tl.where(a < 0, tl.where(a == tl.floor(a), float("nan"), mirrored), result)
    return tl.where(a == 0, -1.0 / a, result)


@triton.jit
def trigamma(a):
    """The second derivative of lgamma."""
    y = tl.where(a < 0.5, 1.0 - a, a)
    more = tl.zeros_like(y)
    for _ in range(10):
        near = y < 10.0
        more = more + tl.where(near, 1.0 / (y * y), 0.0)
        y = tl.where(near, y + 1.0, y)
    r = 1.0 / (y * y)
    tail = 0.16666666666666666 - r * (
        0.03333333333333333 - r * (0.023809523809523808 - r * 0.03333333333333333)
    )
    result = more + (1.0 + 0.5 / y + r * tail) / y
    sine = tl.sin(3.141592653589793 * (a - tl.floor(a + 0.5)))
    return tl.where(a < 0.5, 9.869604401089358 / (sine * sine) - result, result)
'''


def _by_name() -> dict[str, str]:
    """Return the text of each helper function by name."""
    texts = _SOURCE.strip().split("\n\n\n")
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


def calls_function(text: str) -> bool:
    """Return True if a Python text uses a helper function or the library of the GPU; these take no plain numbers."""
    return LIBRARY in text or bool(helpers_in(text))
