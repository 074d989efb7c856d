"""Write random tensors like the inputs of a graph as expressions, with the valid range of each input.

Integers may be indices, and a logarithm may be taken of a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx

from fx_lsp.codegen.ir.index import expression
from fx_lsp.codegen.ir.text import size_text
from fx_lsp.tracer.kernels.subject import tuple_text

MAX_PLAIN_INTEGER = 8
"""The bound of integers that are not an index."""

_SAME = frozenset(
    {"alias", "clone", "contiguous", "detach", "expand", "lift_fresh_copy", "masked_fill", "permute", "repeat"}
    | {"reshape", "select", "slice", "squeeze", "t", "to", "transpose", "unsqueeze", "view", "where", "_to_copy"}
    | {"convert_element_type", "abs", "remainder", "clamp", "clamp_min", "clamp_max"}
)
"""Operations whose results are indices if their argument is one."""

_POSITIVE = frozenset({"log", "log1p", "log2", "log10", "sqrt", "rsqrt", "logit", "xlogy", "special_xlog1py"})
_ALONG = ("gather", "index_select", "take_along_dim", "scatter", "index_add", "index_copy", "index_fill")
_KEEP_SIGN = _SAME | {"add", "mul", "div"}


def random_tensor(tensor: torch.Tensor, node: fx.Node | None, requires_grad: bool) -> str:
    """Return an expression for a random tensor like an input of a graph, whose node is `node`: the same sizes, strides
    and dtype, on `device`.
    """
    sizes, strides = _texts(tensor.shape), _texts(tensor.stride())
    drawn_sizes = ["1" if stride == "0" else size for size, stride in zip(sizes, strides, strict=True)]
    is_expanded = drawn_sizes != sizes
    if tensor.is_contiguous() and not is_expanded:
        if requires_grad and tensor.dtype in _DRAWN:
            return _random_values(tensor.dtype, tuple_text(drawn_sizes), node, ", requires_grad=True")
        text = _random_values(tensor.dtype, tuple_text(drawn_sizes), node)
    else:
        values = _random_values(tensor.dtype, tuple_text(drawn_sizes), node)
        operand = f"({values})" if tensor.dtype is torch.bool else values
        layout = f"{tuple_text(sizes)}, {tuple_text(strides)}, dtype={tensor.dtype}, device=device"
        text = (
            f"{operand}.expand({tuple_text(sizes)})"
            if is_expanded
            else f"torch.empty_strided({layout}).copy_({operand})"
        )
    return f"{text}.requires_grad_()" if requires_grad else text


def _texts(sizes: Iterable[Any]) -> list[str]:
    return [size_text(expression(size)) for size in sizes]


def _random_values(dtype: torch.dtype, shape: str, node: fx.Node | None, options: str = "") -> str:
    """Return an expression for random values; `options` are further arguments of `torch.randn`."""
    of_dtype = "" if dtype in (torch.float32, torch.int64) else f", dtype={dtype}"
    if dtype is torch.bool:
        return f"torch.rand({shape}, device=device) < 0.5"
    if not dtype.is_floating_point and not dtype.is_complex:
        return f"torch.randint({highest(node) if node is not None else 2}, {shape}{of_dtype}, device=device)"
    draw = "torch.rand" if node is not None and is_positive(node) else "torch.randn"
    if dtype in _DRAWN:
        return f"{draw}({shape}{of_dtype}, device=device{options})"
    return f"{draw}({shape}, device=device).to({dtype})"


_DRAWN = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex32, torch.complex64, torch.complex128}
)
"""The dtypes that `torch.randn` supports."""


def highest(node: fx.Node) -> str:
    """Return one more than the greatest integer that the input may contain, as an expression of open sizes."""
    sizes = dict.fromkeys(expression(size) for size in _indexed(node, set()))
    numbers = [int(size) for size in sizes if size.is_Integer]
    texts = [str(max(1, min(numbers)))] if numbers else []
    texts += [size_text(size) for size in sizes if not size.is_Integer]
    return f"min({', '.join(texts)})" if len(texts) > 1 else next(iter(texts), str(MAX_PLAIN_INTEGER))


def is_positive(node: fx.Node) -> bool:
    """Return True if an operation needs the input to be positive, such as a logarithm."""
    seen: set[fx.Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        for user in current.users:
            name = _name(user)
            if name in _POSITIVE and user.args[0] is current:
                return True
            inputs = [a for a in user.args if isinstance(a, fx.Node)]
            if user not in seen and name in _KEEP_SIGN and len(inputs) == 1:
                seen.add(user)
                stack.append(user)
    return False


def _name(node: fx.Node) -> str:
    if node.op != "call_function":
        return ""
    packet = getattr(node.target, "overloadpacket", None)
    return getattr(packet, "__name__", None) or getattr(node.target, "__name__", "")


def _indexed(node: fx.Node, seen: set[fx.Node]) -> Iterator[Any]:
    """Yield the sizes of the dimensions that a value indexes."""
    for user in node.users:
        if user in seen or user.op != "call_function":
            continue
        seen.add(user)
        name = _name(user)
        args: list[Any] = list(user.args)
        if name == "embedding" and args[1] is node:
            yield _shape(args[0])[0]
        elif name in ("index", "_unsafe_index", "index_put", "index_put_", "_unsafe_index_put", "_unsafe_masked_index"):
            indices = args[2] if name == "_unsafe_masked_index" else args[1]
            yield from (_shape(args[0])[n] for n, i in enumerate(indices) if i is node)
        elif name.startswith(_ALONG) and len(args) > 2 and args[2] is node:
            yield _shape(args[0])[args[1]]
        elif name == "take" and args[1] is node:
            yield args[0].meta["val"].numel()
        elif name.startswith(("nll_loss", "cross_entropy")) and args[1] is node:
            yield _shape(args[0])[1 if len(_shape(args[0])) > 1 else 0]
        elif name == "eq":
            yield from _compared(user, node)
        elif name in _SAME:
            yield from _indexed(user, seen)


def _compared(user: fx.Node, node: fx.Node) -> Iterator[Any]:
    """Yield the number of classes if a value is compared with each of them."""
    other: Any = next((a for a in user.args if a is not node), None)
    while isinstance(other, fx.Node) and _name(other) in _SAME and other.args:
        other = other.args[0]
    if isinstance(other, fx.Node) and _name(other) in ("iota", "arange") and isinstance(other.args[0], int):
        yield other.args[0]


def _shape(value: Any) -> torch.Size:
    return value.meta["val"].shape
