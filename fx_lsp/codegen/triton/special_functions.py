"""Helper functions of a generated file for special functions, from their series and continued fractions.

They compute in float64, in which the textbook formula is exact enough for float32 without a table.
"""

from __future__ import annotations

SPECIAL = '''
@triton.jit
def lgamma(a):
    """The logarithm of the size of the gamma function: Stirling's series, for small numbers moved by 8."""
    x = tl.abs(a.to(tl.float64))
    near = x < 8.0
    product = tl.where(near, x, 1.0)
    for k in range(1, 8):
        product = product * tl.where(near, x + k, 1.0)
    y = tl.where(near, x + 8.0, x)
    r = 1.0 / (y * y)
    tail = 0.08333333333333333 - r * (
        0.002777777777777778 - r * (0.0007936507936507937 - r * 0.0005952380952380953)
    )
    found = (y - 0.5) * tl.log(y) - y + 0.9189385332046727 + tail / y - tl.log(product)
    sine = tl.abs(tl.sin(3.141592653589793 * (x - tl.floor(x + 0.5))))
    found = tl.where(a < 0, 1.1447298858494002 - tl.log(x * sine) - found, found)
    return tl.where(x == float("inf"), x, found).to(a.dtype)


@triton.jit
def digamma(a):
    """The derivative of lgamma: its asymptotic series, for small numbers moved by 10."""
    x = a.to(tl.float64)
    y = tl.where(x < 0, 1.0 - x, x)
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
    found = tl.where(y == float("inf"), y, tl.log(y) - 0.5 / y - tail - less)
    angle = 3.141592653589793 * (x - tl.floor(x + 0.5))
    mirrored = found - 3.141592653589793 * tl.cos(angle) / tl.sin(angle)
    found = tl.where(x < 0, tl.where(x == tl.floor(x), float("nan"), mirrored), found)
    return tl.where(x == 0, -1.0 / x, found).to(a.dtype)


@triton.jit
def trigamma(a):
    """The second derivative of lgamma."""
    x = a.to(tl.float64)
    y = tl.where(x < 0.5, 1.0 - x, x)
    more = tl.zeros_like(y)
    for _ in range(10):
        near = y < 10.0
        more = more + tl.where(near, 1.0 / (y * y), 0.0)
        y = tl.where(near, y + 1.0, y)
    r = 1.0 / (y * y)
    tail = 0.16666666666666666 - r * (
        0.03333333333333333 - r * (0.023809523809523808 - r * 0.03333333333333333)
    )
    found = more + (1.0 + 0.5 / y + r * tail) / y
    sine = tl.sin(3.141592653589793 * (x - tl.floor(x + 0.5)))
    return tl.where(x < 0.5, 9.869604401089358 / (sine * sine) - found, found).to(a.dtype)


@triton.jit
def erfinv(a):
    """The inverse of erf: Giles's approximation, and two steps of Newton's method."""
    x = a.to(tl.float64)
    w = -tl.log((1.0 - x) * (1.0 + x))
    v = w - 2.5
    p = 3.43273939e-07 + 2.81022636e-08 * v
    p = -4.39150654e-06 + (-3.5233877e-06 + p * v) * v
    p = -0.00125372503 + (0.00021858087 + p * v) * v
    p = 1.50140941 + (0.246640727 + (-0.00417768164 + p * v) * v) * v
    u = tl.sqrt(w) - 3.0
    q = 0.000100950558 - 0.000200214257 * u
    q = -0.00367342844 + (0.00134934322 + q * u) * u
    q = -0.0076224613 + (0.00573950773 + q * u) * u
    q = 2.83297682 + (1.00167406 + (0.00943887047 + q * u) * u) * u
    y = x * tl.where(w < 5.0, p, q)
    for _ in range(2):
        y = y - (tl.erf(y) - x) * 0.886226925452758 * tl.exp(y * y)
    return tl.where(tl.abs(x) == 1.0, x * float("inf"), y).to(a.dtype)


@triton.jit
def erfcx(a):
    """exp(a * a) * erfc(a)."""
    x = a.to(tl.float64)
    size = tl.abs(x)
    f = size + 20.0 / tl.maximum(size, 1.0)
    for k in range(39):
        f = size + (19.5 - 0.5 * k) / f
    far = 0.5641895835477563 / f
    power = tl.exp(x * x)
    found = tl.where(size < 2.0, power * (1.0 - tl.erf(size)), far)
    return tl.where(x < 0, 2.0 * power - found, found).to(a.dtype)


@triton.jit
def i0e(a):
    """exp(-abs(a)) times the modified Bessel function of order 0: its power series, or its asymptotic one."""
    x = tl.abs(a.to(tl.float64))
    t = 0.25 * x * x
    term = tl.zeros_like(x) + 1.0
    near = term
    for k in range(1, 48):
        term = term * t / (k * k)
        near = near + term
    term = tl.zeros_like(x) + 1.0
    far = term
    for k in range(1, 20):
        term = term * ((2.0 * k - 1.0) * (2.0 * k - 1.0)) / (8.0 * k * x)
        far = far + term
    far = far / tl.sqrt(6.283185307179586 * x)
    return tl.where(x < 20.0, near * tl.exp(-x), far).to(a.dtype)


@triton.jit
def i1e(a):
    """exp(-abs(a)) times the modified Bessel function of order 1."""
    x = tl.abs(a.to(tl.float64))
    t = 0.25 * x * x
    term = 0.5 * x
    near = term
    for k in range(1, 48):
        term = term * t / (k * k + k)
        near = near + term
    term = tl.zeros_like(x) + 1.0
    far = term
    for k in range(1, 20):
        term = term * ((2.0 * k - 1.0) * (2.0 * k - 1.0) - 4.0) / (8.0 * k * x)
        far = far + term
    far = far / tl.sqrt(6.283185307179586 * x)
    found = tl.where(x < 20.0, near * tl.exp(-x), far)
    return tl.where(a < 0, -found, found).to(a.dtype)


@triton.jit
def i0(a):
    """The modified Bessel function of order 0."""
    x = a.to(tl.float64)
    return (i0e(x) * tl.exp(tl.abs(x))).to(a.dtype)


@triton.jit
def i1(a):
    """The modified Bessel function of order 1."""
    x = a.to(tl.float64)
    return (i1e(x) * tl.exp(tl.abs(x))).to(a.dtype)


@triton.jit
def gcd(a, b):
    """The greatest common divisor, by Euclid's algorithm."""
    a, b = tl.abs(a), tl.abs(b)
    for _ in range(92):
        rest = tl.where(b == 0, 0, a % tl.where(b == 0, 1, b)).to(a.dtype)
        a, b = tl.where(b == 0, a, b), rest
    return a


@triton.jit
def nextafter(a, b):
    """The next representable number after a in the direction of b."""
    if a.dtype.is_fp64():
        bits = a.to(tl.int64, bitcast=True)
    else:
        bits = a.to(tl.int32, bitcast=True)
    step = tl.where((a > 0) == (b > a), 1, -1).to(bits.dtype)
    near = (bits + step).to(a.dtype, bitcast=True)
    least = (bits * 0 + 1).to(a.dtype, bitcast=True)
    near = tl.where(a == 0, tl.where(b < 0, -least, least), near)
    return tl.where(a == b, b, tl.where((a != a) | (b != b), a + b, near))


@triton.jit
def frexp_exponent(a):
    """The exponent e of a number m * 2**e with a mantissa m from a half to one."""
    small = tl.abs(a) < 1.1754943508222875e-38
    bits = tl.where(small, a * 33554432.0, a).to(tl.int32, bitcast=True)
    found = ((bits >> 23) & 255) - tl.where(small, 151, 126)
    return tl.where((a == 0) | (a != a) | (tl.abs(a) == float("inf")), 0, found)


@triton.jit
def frexp_mantissa(a):
    """The mantissa m, from a half to one, of a number m * 2**e."""
    small = tl.abs(a) < 1.1754943508222875e-38
    bits = tl.where(small, a * 33554432.0, a).to(tl.int32, bitcast=True)
    found = ((bits & -2139095041) | 1056964608).to(tl.float32, bitcast=True)
    return tl.where((a == 0) | (a != a) | (tl.abs(a) == float("inf")), a, found)
'''
