"""The tensors that a module holds, the places where it holds them, and what a call leaves behind in it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CellType
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


def surroundings(function: Callable[..., Any], touched: Collection[int]) -> list[Held]:
    """The tensors that a function reads without being given them, of those whose ids are `touched`.

    It may find them in the variables of the function around it, in the object it is a method of, and at the top level
    of its file; also inside modules that are there.
    """
    plain = inspect.unwrap(getattr(function, "__func__", function))
    found: list[Held] = []
    names: tuple[str, ...] = getattr(getattr(plain, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(plain, "__closure__", None) or (), strict=False):
        found += _held_at(name, cell, "cell_contents", _contents(cell))
    receiver = getattr(function, "__self__", None)
    if receiver is not None and not isinstance(receiver, (type, nn.Module)):
        for name, value in getattr(receiver, "__dict__", {}).items():
            found += _held_at(f"self.{name}", receiver.__dict__, name, value)
    namespace: dict[str, Any] = getattr(plain, "__globals__", {})
    for name, value in list(namespace.items()):
        found += _held_at(name, namespace, name, value)
    unique = {id(held.tensor): held for held in reversed(found) if id(held.tensor) in touched}
    return list(reversed(unique.values()))


def _held_at(name: str, container: Any, key: Any, value: Any) -> list[Held]:
    if isinstance(value, torch.Tensor):
        return [Held(name, value, "buffer", [(container, key)])]
    return held_tensors(value, name) if isinstance(value, nn.Module) else []


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that was never assigned
        return None


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
        if isinstance(container, CellType):
            container.cell_contents = tensor
        else:
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
