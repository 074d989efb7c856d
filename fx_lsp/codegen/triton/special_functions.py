"""Helper functions of a generated file for special functions, from their series and continued fractions.

Where single precision loses digits, they compute in float64.
"""

from __future__ import annotations

SPECIAL = '''
@triton.jit
def lgamma(a):
    """The logarithm of the size of the gamma function: Stirling's series, for small numbers of a fitted polynomial."""
    x = tl.abs(a)
    y = tl.maximum(x, 3.0)
    r = 1.0 / (y * y)
    tail = 0.08333333333333333 - r * (
        0.002777777777777778 - r * (0.0007936507936507937 - r * 0.0005952380952380953)
    )
    far = (y - 0.5) * (tl.log(y) - 1.0) + (0.4189385332046727 + tail / y)
    t = tl.where(x < 1.5, x - 1.0, tl.minimum(x - 2.0, 1.0))
    p = (-2.04889620e-05 * t + 4.40985496e-05) * t - 2.89581294e-05
    p = (p * t + 6.54031755e-05) * t - 2.33414437e-04
    p = (p * t + 5.31538390e-04) * t - 1.18964794e-03
    p = (p * t + 2.88389181e-03) * t - 7.38594728e-03
    p = (p * t + 2.05816515e-02) * t - 6.73522875e-02
    p = (p * t + 3.22466999e-01) * t + 4.22784328e-01
    near = p * t - tl.where(x < 1.5, tl.log(x), 0.0)
    result = tl.where(x < 3.0, near, tl.where(x < float("inf"), far, x))
    sine = tl.abs(tl.sin(3.141592653589793 * (x - tl.floor(x + 0.5))))
    mirrored = tl.where(sine > 0.0, 1.1447298858494002 - tl.log(x * sine) - result, float("inf"))
    return tl.where(a < 0, mirrored, result)


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
    result = tl.where(size < 2.0, power * (1.0 - tl.erf(size)), far)
    return tl.where(x < 0, 2.0 * power - result, result).to(a.dtype)


@triton.jit
def scaled_bessel(x, n: tl.constexpr):
    """exp(-x) times the modified Bessel function of order 0 or 1: its power series, or its asymptotic one."""
    near = tl.zeros_like(x) + 1.0 if n == 0 else 0.5 * x
    far = tl.zeros_like(x) + 1.0
    term, tail = near, far
    for k in tl.static_range(1, 25):
        term = term * (0.25 * x * x) * (1.0 / (k * k + n * k))
        near = near + term
    for k in tl.static_range(1, 16):
        tail = tail * (((2 * k - 1) * (2 * k - 1) - 4 * n) / (8.0 * k)) / x
        far = far + tail
    return tl.where(x < 10.0, near * tl.exp(-x), far / tl.sqrt(6.283185307179586 * x))


@triton.jit
def i0e(a):
    return scaled_bessel(tl.abs(a), 0)


@triton.jit
def i1e(a):
    result = scaled_bessel(tl.abs(a), 1)
    return tl.where(a < 0, -result, result)


@triton.jit
def i0(a):
    root = tl.exp(0.5 * tl.abs(a))
    return i0e(a) * root * root


@triton.jit
def i1(a):
    root = tl.exp(0.5 * tl.abs(a))
    return i1e(a) * root * root


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
    result = ((bits >> 23) & 255) - tl.where(small, 151, 126)
    return tl.where((a == 0) | (a != a) | (tl.abs(a) == float("inf")), 0, result)


@triton.jit
def frexp_mantissa(a):
    """The mantissa m, from a half to one, of a number m * 2**e."""
    small = tl.abs(a) < 1.1754943508222875e-38
    bits = tl.where(small, a * 33554432.0, a).to(tl.int32, bitcast=True)
    result = ((bits & -2139095041) | 1056964608).to(tl.float32, bitcast=True)
    return tl.where((a == 0) | (a != a) | (tl.abs(a) == float("inf")), a, result)
'''
