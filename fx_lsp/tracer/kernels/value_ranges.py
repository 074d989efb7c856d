"""Which values the inputs of a graph may have: integers that are indices, and numbers that a logarithm is taken of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx

from fx_lsp.tracer.run.values.symbols import size_hint

MOST = 8
"""How large integers get that no index is made of."""

_SAME = frozenset(
    {"alias", "clone", "contiguous", "detach", "expand", "lift_fresh_copy", "masked_fill", "permute", "repeat"}
    | {"reshape", "select", "slice", "squeeze", "t", "to", "transpose", "unsqueeze", "view", "where", "_to_copy"}
    | {"convert_element_type", "abs", "remainder", "clamp", "clamp_min", "clamp_max"}
)
"""Operations whose results are indices where their argument is one."""

_POSITIVE = frozenset({"log", "log1p", "log2", "log10", "sqrt", "rsqrt", "logit", "xlogy", "special_xlog1py"})
_ALONG = ("gather", "index_select", "take_along_dim", "scatter", "index_add", "index_copy", "index_fill")
_KEEP_SIGN = _SAME | {"add", "mul", "div"}


def highest(node: fx.Node) -> int:
    """One more than the greatest integer that the input may hold."""
    sizes = [size_hint(s) for s in _indexed(node, set())]
    return max(1, min(sizes)) if sizes else MOST


def is_positive(node: fx.Node) -> bool:
    """Whether something is computed of the input that only positive numbers have."""
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
    """The sizes of the dimensions that a value is an index of."""
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
    """The number of classes, where a value is compared with each of them."""
    other: Any = next((a for a in user.args if a is not node), None)
    while isinstance(other, fx.Node) and _name(other) in _SAME and other.args:
        other = other.args[0]
    if isinstance(other, fx.Node) and _name(other) in ("iota", "arange") and isinstance(other.args[0], int):
        yield other.args[0]


def _shape(value: Any) -> torch.Size:
    return value.meta["val"].shape
