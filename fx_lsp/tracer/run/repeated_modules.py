"""Skip repeated modules of a model, such as its layers: in a run on symbols one of them represents all.

Two are alike if they consist of the same modules with parameters of the same sizes and the same plain attributes, and
if they receive the same sizes. The second returns the results of the first, without running its code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from fx_lsp.tracer.run.observation import Run
from fx_lsp.tracer.run.values.constants import has_value

_PLAIN = (int, float, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, type, type(...))
_MODULE_STATE = frozenset(vars(nn.Module()))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_backward_hooks")


@dataclass(frozen=True)
class _Result:
    """Hold a module's result, its arguments, and its number of torch calls.

    The arguments stay alive, so that no other tensor gets the id of one.
    """

    value: Any
    calls: int
    arguments: Any


@contextmanager
def repeated_modules_skipped(run: Run) -> Generator[None, None, None]:
    """Make a module inside return the result of an equal one that ran on inputs of the same sizes."""
    kind: Any = nn.Module
    original: Callable[..., Any] = kind.__call__
    results: dict[Hashable, _Result] = {}
    descriptions: dict[int, tuple[nn.Module, Hashable]] = {}

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if next(self.children(), None) is None:
            return original(self, *args, **kwargs)
        if id(self) not in descriptions:
            descriptions[id(self)] = self, _description(self)
        (_, module), inputs = descriptions[id(self)], _inputs(args, kwargs)
        if module is None or inputs is None:
            return original(self, *args, **kwargs)
        key = (module, torch.is_grad_enabled(), inputs)
        if key in results:
            run.calls += results[key].calls
            return results[key].value
        before, state = run.calls, _attributes(self)
        value = original(self, *args, **kwargs)
        if _attributes(self) == state:
            results[key] = _Result(value, run.calls - before, (args, kwargs))
        return value

    kind.__call__ = call
    try:
        yield
    finally:
        kind.__call__ = original


def _description(module: nn.Module) -> Hashable:
    """Return a key of a module's behaviour with respect to sizes; None if hooks may change it."""
    parts: list[Hashable] = []
    for path, part in module.named_modules():
        if any(getattr(part, name, None) for name in _HOOKS):
            return None
        tensors = (*part._parameters.items(), *part._buffers.items())
        parts.append((path, type(part), part.training, tuple((name, _tensor(held)) for name, held in tensors)))
        own = ((name, value) for name, value in vars(part).items() if name not in _MODULE_STATE)
        parts.append(tuple((name, _item(value, id)) for name, value in own))
    return tuple(parts)


def _inputs(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hashable:
    """Return a key of the arguments of a call; None if the call may change them."""
    items = [_item(value, lambda item: None) for value in (args, kwargs)]
    return None if None in items else tuple(items)


def _item(value: Any, otherwise: Callable[[Any], Hashable]) -> Hashable:
    """Return a value as part of a key; `otherwise` handles values that contain neither plain values nor tensors."""
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, torch.SymInt):
        return value.node.expr
    if isinstance(value, _PLAIN):
        return type(value), value
    if isinstance(value, (tuple, list)):
        parts: list[Hashable] = [_item(part, otherwise) for part in value]
        return None if None in parts else (type(value), *parts)
    if isinstance(value, dict):
        parts = [_item(part, otherwise) for part in value.values()]
        return None if None in parts else (type(value), *value, *parts)
    return otherwise(value)


def _tensor(tensor: torch.Tensor | None) -> Hashable:
    """Return the specs of a tensor, and its identity if its values are known, because code may read them."""
    if tensor is None:
        return ()
    sizes = (*tensor.shape, *tensor.stride()) if tensor.layout is torch.strided else tuple(tensor.shape)
    identity = id(tensor) if has_value(tensor) else None
    expressions = tuple(size.node.expr if isinstance(size, torch.SymInt) else size for size in sizes)
    return identity, expressions, tensor.dtype, tensor.device, tensor.requires_grad, type(tensor)


def _attributes(module: nn.Module) -> list[Any]:
    """Return the attributes of a module and of its submodules, by identity."""
    held = (vars(part).items() for part in module.modules())
    tensors = (id(tensor) for tensor in tree_leaves([part._buffers for part in module.modules()]))
    return [*((name, id(value)) for items in held for name, value in items), *tensors]
