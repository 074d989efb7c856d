"""Recognize tensors that were computed alike: equal masks select equally many elements.

A tensor has a key: that of the operation that computed it and of the operands. Tensors that are random, written in
place or not the result of an operation have a unique key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import torch
from torch._ops import OpOverload

Key = tuple[object, ...]
_KEY = "_fx_lsp_key"
"""The attribute of a tensor with its key, and the version of the tensor with that key."""
_PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
_COUNTS = {torch.ops.aten.nonzero.default: 0, torch.ops.aten.masked_select.default: 1}
"""Operations whose result has as many rows as a mask has true elements, each with the mask's position."""
_numbers = count()
_numbers_by_structure: dict[Key, int] = {}


def note_computed(
    func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], results: Iterator[torch.Tensor]
) -> None:
    """Set the keys of an operation's results."""
    if torch.Tag.nondeterministic_seeded in func.tags or func._schema.is_mutable:
        return
    structure = _structure(func, args, kwargs)
    if structure is None:
        return
    for place, result in enumerate(results):
        if _KEY not in result.__dict__ and not result.is_inference():
            number = _numbers_by_structure.setdefault((*structure, place), next(_numbers))
            setattr(result, _KEY, (number, result._version))


def count_key(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Key | None:
    """Return a key of the data-dependent numbers of an operation; None if unknown."""
    place = _COUNTS.get(func)
    if place is None:
        return _structure(func, args, kwargs)
    mask = args[place]
    if any(_sizes(operand) != _sizes(mask) for operand in args):
        return _structure(func, args, kwargs)  # the mask is broadcast
    return ("nonzero", _number_of(mask))


def _structure(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Key | None:
    parts = [func, *_parts((*args, *kwargs.items()))]
    return None if NotImplemented in parts else tuple(parts)


def _parts(item: Any) -> Iterator[object]:
    if isinstance(item, (tuple, list)):
        yield len(item)  # pyright: ignore[reportUnknownArgumentType]
        for part in item:  # pyright: ignore[reportUnknownVariableType]
            yield from _parts(part)
    elif isinstance(item, torch.Tensor):
        yield ("tensor", _number_of(item))
    elif isinstance(item, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        yield ("symbol", str(item.node.expr))
    else:
        yield (type(item), item) if isinstance(item, _PLAIN) else NotImplemented


def _number_of(tensor: torch.Tensor) -> int:
    """Return the number of a tensor's values, a new one if they have changed since it was recorded."""
    if tensor.is_inference():
        return next(_numbers)
    number, version = tensor.__dict__.get(_KEY, (0, None))
    if version != tensor._version:
        number = next(_numbers)
        setattr(tensor, _KEY, (number, tensor._version))
    return number


def _sizes(tensor: torch.Tensor) -> list[str]:
    return [str(size.node.expr) if isinstance(size, torch.SymInt) else str(size) for size in tensor.shape]
