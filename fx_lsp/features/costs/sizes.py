"""Compute the memory of tensors from their specs, and list the operations that allocate none."""

from __future__ import annotations

import re
from functools import lru_cache

from fx_lsp.model import Node

_TENSOR = re.compile(r"\b(?P<kind>bf|[biufc])(?P<bits>\d+)\w*\[(?P<sizes>[^\]]*)\]")
_VIEWS = frozenset(
    {
        "_conj",
        "_neg_view",
        "_reshape_alias",
        "_unsafe_view",
        "alias",
        "as_strided",
        "chunk",
        "detach",
        "diagonal",
        "expand",
        "expand_as",
        "getitem",
        "imag",
        "lift_fresh",
        "movedim",
        "narrow",
        "permute",
        "real",
        "reshape",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "swapaxes",
        "swapdims",
        "t",
        "tensor_split",
        "transpose",
        "unbind",
        "unflatten",
        "unfold",
        "unsqueeze",
        "view",
        "view_as",
        "view_as_complex",
        "view_as_real",
    }
)


@lru_cache(maxsize=4096)
def bytes_of(spec: str | None) -> int | None:
    """Return the bytes of all tensors' elements in a spec, 0 without tensors; None if a size is not a number."""
    total = 0
    for tensor in _TENSOR.finditer(spec or ""):
        elements = 1
        for size in filter(None, (part.strip() for part in tensor["sizes"].split(","))):
            if not size.isdigit():
                return None
            elements *= int(size)
        total += elements * max(int(tensor["bits"]) // 8, 1)
    return total


def shares_storage(node: Node) -> bool:
    """Return True if the result of a node shares the memory of its first input: a view, or a write in place."""
    if not node.op.startswith("call_") or not node.inputs:
        return False
    name = node.target.removeprefix("aten.").partition(".")[0].rpartition(".")[2] if "aten." in node.target else ""
    name = name or node.target.rpartition(".")[2]
    return name in _VIEWS or (name.endswith("_") and not name.startswith("_"))
