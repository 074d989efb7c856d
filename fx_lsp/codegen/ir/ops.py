"""Element-wise operations of kernels: a table with the text and the properties of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

Scalar: TypeAlias = "bool | int | float"
Sign: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!="]


@dataclass(frozen=True, eq=False)
class Op:
    """An element-wise operation. There is one instance for each text, so operations are compared by identity.

    `text` is a Triton expression of the arguments `a`, `b`, …. `number` computes it of numbers; if it `folds`, the
    result replaces the operation. `index` computes it of indices, and `sign` is the comparison of indices. The
    operation returns its first argument if the second is `identity`; if it `commutes`, also the reverse. `of_bools` is
    the same operation of bools. An operation that `is_exact` returns one of its arguments or its negative. A cast only
    changes the dtype.
    """

    text: str
    number: Callable[..., Any] | None = None
    folds: bool = False
    index: Callable[..., Any] | None = None
    sign: Sign | None = None
    identity: Scalar | None = None
    commutes: bool = False
    of_bools: Op | None = None
    is_exact: bool = False
    is_cast: bool = False


# fmt: off
COPY = Op("a")
AND = Op("a & b")
OR = Op("a | b")
NOT = Op("not_(a)")
ADD = Op("a + b", lambda a, b: a + b, folds=True, index=lambda a, b: a + b, identity=0, commutes=True, of_bools=OR)
SUB = Op("a - b", lambda a, b: a - b, folds=True, index=lambda a, b: a - b, identity=0)
MUL = Op("a * b", lambda a, b: a * b, folds=True, index=lambda a, b: a * b, identity=1, commutes=True, of_bools=AND)
DIV = Op("a / b", lambda a, b: a / b, folds=True, identity=1)
DIV_RN = Op("tl.div_rn(a, b)")
NEG = Op("-a", lambda a: -a, folds=True, index=lambda a: -a, is_exact=True)
FMA = Op("a * b + c")
SQUARE = Op("a * a", lambda a: a * a)
INVERT = Op("~a", of_bools=NOT)
ABS = Op("tl.abs(a)", abs, is_exact=True)
EXP = Op("tl.exp(a)", math.exp)
EXP2 = Op("tl.exp2(a)")
LOG2 = Op("tl.log2(a)")
ERF = Op("tl.erf(a)")
ONE_PLUS_ERF = Op("one_plus_erf(a)")
SIGMOID = Op("tl.sigmoid(a)", lambda a: 1 / (1 + math.exp(-a)))
RELU = Op("relu(a)", is_exact=True)
WHERE = Op("tl.where(a, b, c)", is_exact=True)
MAX = Op("tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)", is_exact=True)
MIN = Op("tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)", is_exact=True)
FMAX = Op("tl.maximum(a, b)", is_exact=True)
FMIN = Op("tl.minimum(a, b)", is_exact=True)
POW = Op("libdevice.pow(a, b)")
INT_POW = Op("int_pow(a, b)")
LT = Op("a < b", sign="<")
LE = Op("a <= b", sign="<=")
GT = Op("a > b", sign=">")
GE = Op("a >= b", sign=">=")
EQ = Op("a == b", sign="==")
NE = Op("a != b", sign="!=")
# fmt: on

_ROWS = {op.text: op for op in list(globals().values()) if isinstance(op, Op)}


def op(text: str) -> Op:
    """Return the operation with a text. An operation without a row has no known properties."""
    return _ROWS.setdefault(text, Op(text))


def cast(*dtypes: torch.dtype) -> Op:
    """Return the conversion to a dtype, and on to further dtypes."""
    text = "".join(["a", *(f".to({triton_type(dtype)})" for dtype in dtypes)])
    return _ROWS.setdefault(text, Op(text, is_cast=True))


def triton_type(dtype: torch.dtype) -> str:
    """Return Triton's name of a dtype."""
    return "tl.int1" if dtype is torch.bool else f"tl.{str(dtype).removeprefix('torch.')}"
