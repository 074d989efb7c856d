"""Lower element-wise operations: a table of their Triton expressions. `ir/ops.py` describes these further.

`a`, `b`, `c` are the tensor arguments in order. A call of a lower-case name that is neither Triton's nor Python's is
one of the helper functions of `triton/helpers.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.ir.index import Coords
from fx_lsp.codegen.ir.lowerings import NotFusible, args_of, lowering
from fx_lsp.codegen.ir.ops import DIV, DIV_RN, INT_POW, MAX, MIN, MUL, POW, WHERE, Op, cast, op
from fx_lsp.codegen.ir.values import Compute, Constant, Guard, Load, Reduction, Value, compute_dtype
from fx_lsp.codegen.lower.algebra import simplify
from fx_lsp.codegen.lower.builder import Builder

_ARITHMETIC = {
    "add": "a + b",
    "sub": "a - b",
    "rsub": "b - a",
    "mul": "a * b",
    "div": "a / b",
    "true_divide": "a / b",
    "neg": "-a",
    "positive": "a",
    "abs": "tl.abs(a)",
    "reciprocal": "1.0 / a",
    "square": "a * a",
    "exp": "tl.exp(a)",
    "exp2": "tl.exp2(a)",
    "expm1": "libdevice.expm1(a)",
    "log": "tl.log(a)",
    "log2": "tl.log2(a)",
    "log10": "tl.log(a) * 0.4342944819032518",
    "log1p": "libdevice.log1p(a)",
    "sqrt": "tl.sqrt(a)",
    "rsqrt": "tl.rsqrt(a)",
    "sin": "tl.sin(a)",
    "cos": "tl.cos(a)",
    "tan": "tl.sin(a) / tl.cos(a)",
    "sinh": "libdevice.sinh(a)",
    "cosh": "0.5 * (tl.exp(a) + tl.exp(-a))",
    "tanh": "libdevice.tanh(a)",
    "asinh": "libdevice.asinh(a)",
    "acosh": "libdevice.acosh(a)",
    "atanh": "libdevice.atanh(a)",
    "asin": "libdevice.asin(a)",
    "acos": "libdevice.acos(a)",
    "atan": "libdevice.atan(a)",
    "atan2": "libdevice.atan2(a, b)",
    "erf": "tl.erf(a)",
    "erfc": "libdevice.erfc(a)",
    "sigmoid": "tl.sigmoid(a)",
    "relu": "relu(a)",
    "floor": "tl.floor(a)",
    "ceil": "tl.ceil(a)",
    "trunc": "libdevice.trunc(a)",
    "round": "libdevice.rint(a)",
    "sign": "sign(a)",
    "sgn": "sign(a)",
    "maximum": "tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "minimum": "tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "fmax": "tl.maximum(a, b)",
    "fmin": "tl.minimum(a, b)",
    "fmod": "fmod(a, b)",
    "remainder": "remainder(a, b)",
    "hypot": "libdevice.hypot(a, b)",
    "copysign": "libdevice.copysign(a, b)",
    "bitwise_and": "a & b",
    "bitwise_or": "a | b",
    "bitwise_xor": "a ^ b",
    "bitwise_not": "~a",
    "bitwise_left_shift": "a << b",
    "bitwise_right_shift": "a >> b",
    "__lshift__": "a << b",
    "__rshift__": "a >> b",
    "__and__": "a & b",
    "__or__": "a | b",
    "__xor__": "a ^ b",
    "lift_fresh_copy": "a",
    "fma": "a * b + c",
    "lgamma": "libdevice.lgamma(a)",
    "digamma": "digamma(a)",
    "erfinv": "libdevice.erfinv(a)",
    "special_erfcx": "libdevice.erfcx(a)",
    "i0": "libdevice.cyl_bessel_i0(a)",
    "special_i1": "libdevice.cyl_bessel_i1(a)",
    "special_modified_bessel_i0": "libdevice.cyl_bessel_i0(a)",
    "special_modified_bessel_i1": "libdevice.cyl_bessel_i1(a)",
}
"""Operations whose arguments are converted to the dtype of the result."""

_COMPARISONS = {
    "eq": "a == b",
    "ne": "a != b",
    "lt": "a < b",
    "le": "a <= b",
    "gt": "a > b",
    "ge": "a >= b",
    "isnan": "a != a",
    "isinf": "tl.abs(a) == float('inf')",
    "signbit": "signbit(a)",
}
"""Operations whose arguments are converted to their common dtype. The result is a bool."""

_LOGICAL = {
    "logical_and": "a & b",
    "logical_or": "a | b",
    "logical_xor": "a ^ b",
    "logical_not": "not_(a)",
}
"""Operations whose arguments are converted to bool."""

_FLOAT_ONLY = frozenset(("floor", "ceil", "trunc", "round"))
_STEPS = _FLOAT_ONLY | {"fmod", "remainder"}
"""Operations whose results jump where an operand changes a little."""
_FALSE_FOR_INTS = frozenset(("isnan", "isinf"))


def _arguments(node: fx.Node) -> list[Any]:
    return [a for a in args_of(node) if not isinstance(a, (torch.dtype, list, tuple))]


def _result_dtype(node: fx.Node) -> torch.dtype:
    return node.meta["val"].dtype


def _common_dtype(arguments: list[Any]) -> torch.dtype:
    """Return the dtype in which arguments are compared."""
    common: Any = None
    for value in (a.meta["val"] if isinstance(a, fx.Node) else a for a in arguments):
        common = value if common is None else torch.empty((), dtype=torch.result_type(common, value), device="meta")
        if isinstance(value, torch.Tensor) and value.ndim and isinstance(common, torch.Tensor) and not common.ndim:
            common = torch.empty((1,), dtype=common.dtype, device="meta")
    return common.dtype


def _lower_arithmetic(operation: Op, name: str) -> Any:
    def lower(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
        dtype = _result_dtype(node)
        args = tuple(b.operand(a, coords, guard, dtype) for a in _arguments(node))
        if name in _FLOAT_ONLY and not dtype.is_floating_point:
            return args[0]
        called = (operation.of_bools or operation) if dtype is torch.bool else operation
        alpha: Any = node.kwargs.get("alpha", 1)
        if alpha != 1:
            args = (args[0], b.compute(MUL, (args[1], b.constant(alpha, dtype)), args[0].dtype, node))
        rounding: Any = node.kwargs.get("rounding_mode")
        if rounding is not None or name in _STEPS:
            args = tuple(_round_as_stored(b, v, a) for v, a in zip(args, _arguments(node), strict=True))
            args = tuple(_divided_exactly(b, v) for v in args)
        if rounding is not None:
            whole = dtype.is_floating_point
            called = op(
                {"floor": "floor_divide(a, b)", "trunc": "libdevice.trunc(a / b)" if whole else "a // b"}[rounding]
            )
        return simplify(b, called, args, compute_dtype(dtype), node)

    return lower


def _divided_exactly(b: Builder, value: Value) -> Value:
    """Return a value, with a quotient of float32 rounded as PyTorch rounds it.

    On a GPU, Triton's own may be off by two units in the last place, which the next operation would turn into a step.
    """
    if not isinstance(value, Compute) or value.dtype is not torch.float32:
        return value
    if value.op is DIV:
        return b.compute(DIV_RN, value.args, value.dtype, value.node)
    if not value.op.is_exact:
        return value
    args = tuple(_divided_exactly(b, arg) for arg in value.args)
    return value if args == value.args else b.compute(value.op, args, value.dtype, value.node)


def _lower_comparison(operation: Op, name: str) -> Any:
    def lower(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
        dtype = _common_dtype(_arguments(node))
        if name in _FALSE_FOR_INTS and not dtype.is_floating_point:
            return b.constant(False, torch.bool)
        args = tuple(b.operand(a, coords, guard, dtype) for a in _arguments(node))
        if not any(isinstance(a, Constant) and not a.value for a in args):  # rounding does not change a sign
            args = tuple(_round_as_stored(b, v, a) for v, a in zip(args, _arguments(node), strict=True))
        return simplify(b, operation, args, torch.bool, node)

    return lower


def _round_as_stored(b: Builder, value: Value, argument: Any) -> Value:
    """Return an operand of a comparison or of a step function rounded to the dtype that it has in memory.

    A maximum then equals the element that it is from, even if one was stored in half precision and the other is
    computed. All kernels compute the same `floor(x)`, whether they compute or load `x`.
    """
    memory_value: Any = argument.meta["val"] if isinstance(argument, fx.Node) else None
    stored = memory_value.dtype if isinstance(memory_value, torch.Tensor) else value.dtype
    if compute_dtype(stored) is stored or _is_exact(value, stored):
        return value
    return b.compute(cast(stored, value.dtype), (value,), value.dtype, value.node)


def _is_exact(value: Value, stored: torch.dtype) -> bool:
    """Return True if a value is exact in the dtype that it has in memory."""
    if isinstance(value, Load):
        return value.buffer.dtype is stored
    if isinstance(value, Reduction):
        return value.kind in ("max", "min") and all(_is_exact(a, stored) for a in value.args)
    if isinstance(value, Compute):
        return value.op.is_exact and all(a.dtype is torch.bool or _is_exact(a, stored) for a in value.args)
    return isinstance(value, Constant)


def _lower_logical(operation: Op) -> Any:
    def lower(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
        args = tuple(b.operand(a, coords, guard, torch.bool) for a in _arguments(node))
        return simplify(b, operation, args, torch.bool, node)

    return lower


for _name, _text in _ARITHMETIC.items():
    lowering(f"aten.{_name}", f"prims.{_name}")(_lower_arithmetic(op(_text), _name))
for _name, _text in _COMPARISONS.items():
    lowering(f"aten.{_name}")(_lower_comparison(op(_text), _name))
for _name, _text in _LOGICAL.items():
    lowering(f"aten.{_name}")(_lower_logical(op(_text)))


@lowering("prims.convert_element_type", "aten._to_copy", "aten.to", "prims.device_put")
def convert(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a conversion. A value rounded to half precision stays float32 until it is stored."""
    source: Any = args_of(node)[0]
    value = b.lower(source, coords, guard)
    if not _result_dtype(node).is_floating_point:
        value = _round_as_stored(b, value, source)
    return b.convert(value, _result_dtype(node), node)


@lowering("aten.clone", "aten.alias", "aten.detach", "aten.contiguous", "aten.lift_fresh", "prims.view_of")
def same(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a copy of the same elements."""
    source: Any = args_of(node)[0]
    return b.lower(source, coords, guard)


@lowering("aten.copy")
def copy(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a copy of the second argument in the shape and dtype of the first."""
    return b.operand(args_of(node)[1], coords, guard, _result_dtype(node))


@lowering("aten.where.self")
def where(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a choice between two values by a condition."""
    dtype = _result_dtype(node)
    condition = b.operand(args_of(node)[0], coords, guard, torch.bool)
    args = tuple(b.operand(a, coords, guard, dtype) for a in args_of(node)[1:])
    return simplify(b, WHERE, (condition, *args), compute_dtype(dtype), node)


@lowering("aten.clamp", "aten.clamp_min", "aten.clamp_max", "aten.clip")
def clamp(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a clamp between two bounds, either of which may be missing."""
    dtype, name = _result_dtype(node), str(node.target).split(".")[1]
    value = b.operand(args_of(node)[0], coords, guard, dtype)
    bounds = [*args_of(node)[1:], *(node.kwargs.get(k) for k in ("min", "max")[len(args_of(node)) - 1 :])]
    low, high = (None, bounds[0]) if name == "clamp_max" else (bounds[0], bounds[1] if len(bounds) > 1 else None)
    for bound, function in ((low, MAX), (high, MIN)):
        if bound is not None:
            args = value, b.operand(bound, coords, guard, dtype)
            value = b.compute(function, args, value.dtype, node)
    return value


@lowering("aten.pow")
def power(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a power: small whole and half exponents by multiplications and roots, others by a helper."""
    dtype = _result_dtype(node)
    base, exponent = args_of(node)
    value = b.operand(base, coords, guard, dtype)
    if isinstance(exponent, (int, float)) and not isinstance(exponent, bool):
        product = _POWERS.get(float(exponent))
        if product is not None and (dtype.is_floating_point or exponent >= 1):
            return simplify(b, op(product), (value,), compute_dtype(dtype), node)
    args = value, b.operand(exponent, coords, guard, dtype)
    return b.compute(POW if dtype.is_floating_point else INT_POW, args, compute_dtype(dtype), node)


_POWERS = {
    0.5: "tl.sqrt(a)",
    1.0: "a",
    2.0: "a * a",
    3.0: "a * a * a",
    4.0: "a * a * (a * a)",
    -0.5: "tl.rsqrt(a)",
    -1.0: "1.0 / a",
    -2.0: "1.0 / (a * a)",
}


@lowering("aten.polygamma")
def polygamma(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower the first derivatives of lgamma. Raises NotFusible for orders above 1."""
    order, argument = args_of(node)
    if order > 1:
        raise NotFusible(node, "is a high derivative of lgamma")
    value = b.operand(argument, coords, guard, _result_dtype(node))
    return b.compute(op("trigamma(a)" if order else "digamma(a)"), (value,), value.dtype, node)


@lowering("aten.nextafter")
def nextafter(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower the next representable number towards another. Raises NotFusible for half precision."""
    dtype = _result_dtype(node)
    if dtype.itemsize < 4:
        raise NotFusible(node, "depends on the bits of half precision")
    args = tuple(b.operand(a, coords, guard, dtype) for a in args_of(node))
    return b.compute(op("libdevice.nextafter(a, b)"), args, dtype, node)


@lowering(
    *("aten.full", "aten.scalar_tensor", "aten.zeros", "aten.ones", "aten.full_like", "aten.zeros_like"),
    *("aten.ones_like", "aten._efficientzerotensor"),
)
def full(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower a constant tensor."""
    name = str(node.target).split(".")[1]
    values: dict[str, Any] = {"full": 1, "full_like": 1, "scalar_tensor": 0}
    value: Any = args_of(node)[values[name]] if name in values else int(name.startswith("ones"))
    return b.operand(value, (), (), _result_dtype(node))


@lowering("aten.empty", "aten.empty_like", "aten.empty_strided", "aten.new_empty", "aten.new_empty_strided")
def empty(b: Builder, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    """Lower an uninitialised tensor: any value will do."""
    return b.constant(0, _result_dtype(node))
