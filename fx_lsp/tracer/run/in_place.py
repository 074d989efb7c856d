"""Find values that are saved for backward and changed in place before it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from fx_lsp.tracer.source.provenance import Chain

MAX_NODES = 20_000
"""The most nodes of the autograd graph that are visited."""


@dataclass(frozen=True)
class Write:
    """Hold a torch call that changed a tensor in place; `node` is the autograd node that created the tensor.

    For a parameter, `node` accumulates its gradient.
    """

    chain: Chain
    node: Any


@dataclass(frozen=True)
class Overwritten:
    """Hold a write to a value that the operation `saved_by` saves for backward; `trains` if a parameter's gradient is
    lost.

    `parameter` is the written tensor, if it is a leaf of the autograd graph.
    """

    chain: Chain
    saved_by: str
    trains: bool
    parameter: torch.Tensor | None = None


def written_tensor(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """Return the tensor that a torch call changes in place, if autograd tracks it or requires its gradient;
    else None.
    """
    name = getattr(func, "__name__", "")
    is_method = name == "__setitem__" or name in _AUGMENTED or (name.endswith("_") and not name.startswith("_"))
    if not (is_method or kwargs.get("inplace") is True) or not args or not isinstance(args[0], torch.Tensor):
        return None
    return args[0] if args[0].requires_grad else None


def maker_of(tensor: torch.Tensor) -> Any:
    """Return the autograd node that created a tensor; for a leaf, the one that accumulates its gradient.

    None for a view that was created without gradient tracking.
    """
    if tensor.grad_fn is not None:
        return tensor.grad_fn
    with torch.enable_grad(), torch._C.DisableTorchFunction():
        view = tensor.view_as(tensor)
    return view.grad_fn.next_functions[0][0] if view.grad_fn is not None else None


_AUGMENTED = frozenset(
    f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "pow", "mod", "and", "or")
)


def overwritten(outputs: Iterable[torch.Tensor], writes: Iterable[Write]) -> Iterator[Overwritten]:
    """Yield the writes to values saved by the graph of some outputs. Backward would raise at each."""
    by_node = {id(write.node): write for write in writes}
    if not by_node:
        return
    told: set[Chain] = set()
    for node in autograd_graph(t.grad_fn for t in outputs):
        lost = _lost_value(node)
        makers = _makers(node, lost) if lost is not None else ()
        write = next((by_node[id(maker)] for maker in makers if id(maker) in by_node), None)
        if write is not None and write.chain and write.chain not in told:
            told.add(write.chain)
            yield Overwritten(write.chain, _operation(node), trains([node]), getattr(write.node, "variable", None))


def _makers(node: Any, lost: str) -> Iterator[Any]:
    """Yield the nodes that may have created the value that `node` saved as `lost`, first that of the operand with the
    name.

    A parameter may be read through a view, such as the transpose of a weight.
    """
    edges = [maker for maker, _ in node.next_functions]
    packet = getattr(torch.ops.aten, re.sub(r"(?<!^)(?=[A-Z])", "_", _operation(node)).lower(), None)
    overload = getattr(packet, "default", None)
    operands = [a.name for a in overload._schema.arguments if "Tensor" in str(a.type)] if overload is not None else []
    if lost in operands and len(operands) == len(edges):
        edges.insert(0, edges[operands.index(lost)])
    for maker in (node, *edges):
        if maker is not None:
            yield maker
            yield from (leaf for leaf, _ in maker.next_functions if maker is not node)


def _operation(node: Any) -> str:
    """Return the name of a node's operation, `Addmm` for `AddmmBackward0`."""
    return node.name().rstrip("0123456789").removesuffix("Backward")


def autograd_graph(roots: Iterable[Any]) -> Iterator[Any]:
    """Yield the nodes of the autograd graph behind some."""
    seen: dict[int, Any] = {}
    waiting = [node for node in roots if node is not None]
    while waiting and len(seen) < MAX_NODES:
        node = waiting.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            yield node
            waiting += [following for following, _ in node.next_functions if following is not None]


def trains(roots: Iterable[Any]) -> bool:
    """Return True if a parameter is trained through some nodes of the autograd graph."""
    return any(isinstance(getattr(node, "variable", None), nn.Parameter) for node in autograd_graph(roots))


def _lost_value(node: Any) -> str | None:
    """Return the name of a value that a node has saved and that was changed since then, `mat2`; None without any."""
    for name in _saved_names(type(node)):
        try:
            getattr(node, name)
        except RuntimeError as error:
            return name.removeprefix("_saved_") if "inplace" in str(error) else None
    return None


@cache
def _saved_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_saved_"))
