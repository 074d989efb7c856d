"""The tensors that a module holds, the places where it holds them, and what a call leaves behind in it."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from fx_lsp.model import SavedKind


@dataclass
class Held:
    """A tensor that a module holds. `slots` are the containers and keys that refer to it: several where it is tied."""

    name: str
    tensor: torch.Tensor
    kind: SavedKind
    slots: list[tuple[Any, Any]] = field(default_factory=list[tuple[Any, Any]])


def held_tensors(module: nn.Module, prefix: str = "") -> list[Held]:
    """Parameters first, then buffers, then tensors that are plain attributes; each tensor once, by its first name."""
    found: dict[int, Held] = {}
    parts = [(f"{prefix}.{name}" if prefix and name else prefix or name, part) for name, part in module.named_modules()]
    stores: tuple[tuple[str, SavedKind], ...] = (("_parameters", "parameter"), ("_buffers", "buffer"))
    for store, kind in stores:
        for path, part in parts:
            _add(found, path, part.__dict__[store], kind)
    for path, part in parts:
        plain = {k: v for k, v in part.__dict__.items() if isinstance(v, torch.Tensor)}
        _add(found, path, plain, "buffer", part.__dict__)
    for _, part in parts:
        for container in part.__dict__.values():
            if isinstance(container, (list, dict)):
                for key, value in _entries(container):
                    if isinstance(value, torch.Tensor) and id(value) in found:
                        found[id(value)].slots.append((container, key))
    return list(found.values())


def _add(found: dict[int, Held], path: str, tensors: Mapping[str, Any], kind: SavedKind, container: Any = None) -> None:
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor):
            held = found.setdefault(id(tensor), Held(f"{path}.{name}" if path else name, tensor, kind))
            held.slots.append((tensors if container is None else container, name))


def _entries(container: list[Any] | dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return list(container.items() if isinstance(container, dict) else enumerate(container))


@contextmanager
def replaced(held: Iterable[Held], supply: Iterator[torch.Tensor]) -> Generator[None, None, None]:
    """Inside, every place that refers to one of the tensors refers to the next of `supply` instead."""
    before = list(held)
    for item in before:
        _put(item.slots, next(supply))
    try:
        yield
    finally:
        for item in before:
            _put(item.slots, item.tensor)


def _put(slots: list[tuple[Any, Any]], tensor: torch.Tensor) -> None:
    for container, key in slots:
        container[key] = tensor


@contextmanager
def unchanged(modules: Iterable[nn.Module]) -> Generator[None, None, None]:
    """What the code inside assigns to attributes of the modules (a cache, a hidden state) is undone at the end."""
    before = [(part.__dict__, _copied(part.__dict__)) for module in modules for part in module.modules()]
    try:
        yield
    finally:
        for attributes, copies in before:
            attributes.clear()
            for name, (value, contents) in copies.items():
                attributes[name] = value
                if isinstance(value, list):
                    value[:] = contents
                elif isinstance(value, dict):
                    value.clear()
                    value.update(contents)


def _copied(attributes: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Each attribute with a copy of what it contains, for lists and dicts."""
    return {n: (v, v.copy() if isinstance(v, (list, dict)) else None) for n, v in attributes.items()}
