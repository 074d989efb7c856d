"""Values that an operation keeps for the backward pass and that the code changes in place before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import nn

from fx_lsp.tracer.source.provenance import Chain

MAX_NODES = 20_000
"""How many nodes of autograd's graph are looked at."""


@dataclass(frozen=True)
class Write:
    """A torch call that changed a tensor in place; `node` is what made the tensor, as autograd knows it."""

    chain: Chain
    node: Any


@dataclass(frozen=True)
class Overwritten:
    """A write to what the operation `saved_by` keeps for backward; `trains` if a parameter's gradient is lost."""

    chain: Chain
    saved_by: str
    trains: bool


def written_tensor(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor | None:
    """Return the tensor that a torch call changes in place, if autograd follows it."""
    name = getattr(func, "__name__", "")
    is_method = name == "__setitem__" or name in _AUGMENTED or (name.endswith("_") and not name.startswith("_"))
    if not (is_method or kwargs.get("inplace") is True) or not args or not isinstance(args[0], torch.Tensor):
        return None
    return args[0] if args[0].grad_fn is not None else None


_AUGMENTED = frozenset(
    f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "pow", "mod", "and", "or")
)


def overwritten(outputs: Iterable[torch.Tensor], writes: Iterable[Write]) -> Iterator[Overwritten]:
    """Find the writes to what the graph of some outputs has saved. The backward pass would raise at each."""
    by_node = {id(write.node): write for write in writes}
    if not by_node:
        return
    told: set[Chain] = set()
    for node in _graph(t.grad_fn for t in outputs):
        if not _has_lost_a_value(node):
            continue
        makers = node, *(maker for maker, _ in node.next_functions)
        write = next((by_node[id(maker)] for maker in makers if id(maker) in by_node), None)
        if write is not None and write.chain and write.chain not in told:
            told.add(write.chain)
            trains = any(isinstance(getattr(n, "variable", None), nn.Parameter) for n in _graph([node]))
            yield Overwritten(write.chain, node.name().removesuffix("0").removesuffix("Backward"), trains)


def _graph(roots: Iterable[Any]) -> Iterator[Any]:
    """Give the nodes of autograd's graph behind some."""
    seen: dict[int, Any] = {}
    waiting = [node for node in roots if node is not None]
    while waiting and len(seen) < MAX_NODES:
        node = waiting.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            yield node
            waiting += [following for following, _ in node.next_functions if following is not None]


def _has_lost_a_value(node: Any) -> bool:
    """Return True if a value that a node has saved was changed since then."""
    for name in _saved_names(type(node)):
        try:
            getattr(node, name)
        except RuntimeError as error:
            return "inplace" in str(error)
    return False


@cache
def _saved_names(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_saved_"))
