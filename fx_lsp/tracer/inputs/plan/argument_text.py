"""Write the arguments of a real call in the syntax of a `# fx:` comment. Reads no tensor's data."""

from __future__ import annotations

import inspect
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from keyword import iskeyword
from types import CodeType
from typing import Any

import torch
from torch import nn

from fx_lsp.specs import DTYPES, FLOATS
from fx_lsp.tracer.run.context import context_here
from fx_lsp.tracer.run.tensors import spec_of

MAX_TENSORS = 64
"""The most items of a container that holds tensors."""
MAX_ITEMS = 8
"""The most items of any other container."""
MAX_STRING = 40
MAX_DEPTH = 4


_SCALARS = frozenset({bool, int, float, complex, str, type(None)})
_TENSORS = frozenset({torch.Tensor, nn.Parameter})
_CONTAINERS = frozenset({tuple, list, torch.Size, dict, OrderedDict})


class Unwritable(Exception):
    """A value has no text in the syntax."""


def argument_names(code: CodeType) -> tuple[str, ...]:
    """Return a function's parameters by name, in the order of its local variables: `*args` and `**kwargs` last."""
    starred = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + starred]


def fingerprint(names: tuple[str, ...], values: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return a key that is equal for calls with equal texts, and much faster to compute; None if only the text can
    tell.
    """
    if torch._C._len_torch_function_stack():
        return None  # the program would notice queries to a tensor
    parts: list[Any] = []
    for value in (values[name] for name in names if name in values):
        kind = type(value)
        if kind in _TENSORS:
            parts += (value.shape, value.dtype, value.stride(), value.device, value.requires_grad)
        elif kind in _SCALARS:
            parts += (kind, value)
        elif (kind in _CONTAINERS and value) or issubclass(kind, torch.Tensor):
            return None
        else:
            parts.append(id(value))
    return tuple(parts)


def is_evaluating(receiver: Any) -> bool:
    """Return True for a module in evaluation mode."""
    return isinstance(receiver, nn.Module) and not receiver.training


def context_items(receiver: Any) -> tuple[str, ...]:
    """Return the items of a comment for the context here, and for the mode of the module that is called."""
    return (*context_here().written, *(("eval()",) if is_evaluating(receiver) else ()))


def arguments_text(code: CodeType, names: tuple[str, ...], values: Mapping[str, Any]) -> tuple[str, bool]:
    """Return `x=f32[8, 64], n=4` for a call of `code`, and whether it contains a tensor.

    Values without a text are left out. `values` are the function's locals at its first instruction.
    """
    keywords = names[-1] if names and code.co_flags & inspect.CO_VARKEYWORDS else None
    parts: list[str] = []
    tensors = False
    for name, value in _named(names, values, keywords):
        try:
            text, holds = value_text(value, code.co_names)
        except Unwritable:
            continue
        parts.append(f"{name}={text}")
        tensors = tensors or holds
    return ", ".join(parts), tensors


def _named(names: tuple[str, ...], values: Mapping[str, Any], keywords: str | None) -> Iterator[tuple[str, Any]]:
    for name in names:
        if name not in values:
            continue
        if name != keywords:
            yield name, values[name]
            continue
        for key, value in values[name].items():
            if key.isidentifier() and not iskeyword(key) and key not in names:
                yield key, value


def value_text(value: Any, global_names: tuple[str, ...], depth: int = MAX_DEPTH) -> tuple[str, bool]:
    """Return one value as text, and whether it contains a tensor. Raises Unwritable.

    `global_names` are those that the function reads: a dtype or device is an expression that needs `torch`.
    """
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        return tensor_text(value), True
    if value is None or kind in (bool, int, complex):
        return repr(value), False
    if kind is float:
        return (repr(value) if math.isfinite(value) else f"float('{value}')"), False
    if kind is str and len(value) <= MAX_STRING and value.isprintable():
        return repr(value), False
    if kind in (torch.dtype, torch.device) and "torch" in global_names:
        return (str(value) if kind is torch.dtype else f"torch.{value!r}"), False
    if kind in _CONTAINERS and depth:
        return _container_text(value, global_names, depth - 1)
    raise Unwritable


def _container_text(value: Any, global_names: tuple[str, ...], depth: int) -> tuple[str, bool]:
    if len(value) > MAX_TENSORS:
        raise Unwritable
    keyed = isinstance(value, dict)
    written = [value_text(v, global_names, depth) for v in (value.values() if keyed else value)]
    tensors = any(holds for _, holds in written)
    if len(value) > MAX_ITEMS and not tensors:
        raise Unwritable
    texts = [text for text, _ in written]
    if keyed:
        keys = [value_text(k, (), 0)[0] for k in value]
        return f"{{{', '.join(f'{k}: {t}' for k, t in zip(keys, texts, strict=True))}}}", tensors
    if isinstance(value, list):
        return f"[{', '.join(texts)}]", tensors
    return (f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"), tensors


def tensor_text(tensor: torch.Tensor) -> str:
    """Return the spec of a tensor. Raises Unwritable for sparse, nested and quantized ones, and for symbolic sizes."""
    with torch._C.DisableTorchFunction():
        try:
            if tensor.layout is not torch.strided or tensor.is_nested:
                raise Unwritable
            spec = spec_of(tensor)
            spec = replace(spec, detached=spec.dtype in FLOATS and not tensor.requires_grad)
        except Exception as error:  # a subclass of Tensor may raise anything
            raise Unwritable from error
    if spec.dtype not in DTYPES or not all(isinstance(size, int) for size in spec.sizes):
        raise Unwritable
    return str(spec)
