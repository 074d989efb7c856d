"""Find the tensors of a module, the places that refer to them, and the effects of a call on the module."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from fx_lsp.model import SavedKind
from fx_lsp.tracer.run.callables import innermost


@dataclass
class Held:
    """Hold a tensor of a module. `slots` are the containers and keys that refer to it: several if it is tied.

    `plain` is True if it is a mere attribute, which a call may replace before reading it.
    """

    name: str
    tensor: torch.Tensor
    kind: SavedKind
    slots: list[tuple[Any, Any]] = field(default_factory=list[tuple[Any, Any]])
    plain: bool = False


def held_tensors(module: nn.Module, prefix: str = "") -> list[Held]:
    """Return parameters first, then buffers, then tensors in plain attributes; each tensor once, by its first name."""
    held: dict[int, Held] = {}
    parts = [(f"{prefix}.{name}" if prefix and name else prefix or name, part) for name, part in module.named_modules()]
    stores: tuple[tuple[str, SavedKind], ...] = (("_parameters", "parameter"), ("_buffers", "buffer"))
    for store, kind in stores:
        for path, part in parts:
            _add(held, path, part.__dict__.get(store, {}), kind)  # a traced module keeps its own inside of TorchScript
    for path, part in parts:
        plain = {k: v for k, v in part.__dict__.items() if isinstance(v, torch.Tensor)}
        _add(held, path, plain, "buffer", part.__dict__)
    for _, part in parts:
        for container in part.__dict__.values():
            if isinstance(container, (list, dict)):
                for key, value in _entries(container):
                    if isinstance(value, torch.Tensor) and id(value) in held:
                        held[id(value)].slots.append((container, key))
    return list(held.values())


def surroundings(
    function: Callable[..., Any],
    touched: Collection[int],
    modules: Iterable[nn.Module] = (),
    arguments: Iterable[tuple[str, Any]] = (),
) -> list[Held]:
    """Return the tensors that a function reads besides its arguments, among those whose ids are `touched`.

    They may be in its closure, in the object of a method, and at the top level of its file and of those that it
    imports; also inside modules, lists, dicts, functions and objects there or among its `arguments`, and in those of
    `modules`.
    """
    plain = innermost(type(function).forward if isinstance(function, nn.Module) else function)
    held: list[Held] = []
    seen: set[int] = set()
    names: tuple[str, ...] = getattr(getattr(plain, "__code__", None), "co_freevars", ())
    for name, cell in zip(names, getattr(plain, "__closure__", None) or (), strict=False):
        held += _held_at(_Slot(name, cell, "cell_contents", contents_of(cell)), seen)
    if isinstance(function, partial):
        for name, value in function.keywords.items():
            held += _held_at(_Slot(name, function.keywords, name, value), seen)
    receiver = getattr(function, "__self__", None)
    if receiver is not None and not isinstance(receiver, (type, nn.Module)):
        for name, value in getattr(receiver, "__dict__", {}).items():
            held += _held_at(_Slot(f"self.{name}", receiver.__dict__, name, value), seen)
    for module in modules:
        held += _beside_modules(module, "", seen, _DEPTH)
    for name, value in arguments:
        if not isinstance(value, (torch.Tensor, nn.Module)):
            held += _held_at(_Slot(name, [value], 0, value), seen)
    for namespace in _namespaces(getattr(plain, "__globals__", {})):
        for name, value in list(namespace.items()):
            held += _held_at(_Slot(name, namespace, name, value), seen, depth=2)
        if {id(item.tensor) for item in held}.issuperset(touched):
            break
    unique = {id(item.tensor): item for item in reversed(held) if id(item.tensor) in touched}
    return list(reversed(unique.values()))


def _namespaces(first: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the names of a file, then those of the files that these names are from, except for installed packages."""
    seen, waiting = set[int](), [first]
    while waiting:
        namespace = waiting.pop(0)
        if id(namespace) in seen or (seen and not _is_of_project(namespace.get("__file__"))):
            continue
        seen.add(id(namespace))
        yield namespace
        waiting += [vars(value) for value in namespace.values() if isinstance(value, ModuleType)]
        waiting += [value.__globals__ for value in namespace.values() if isinstance(value, FunctionType)]


def _is_of_project(file: object) -> bool:
    """Return True for a file that belongs neither to Python nor to an installed package, in any environment."""
    return isinstance(file, str) and not file.startswith(_LIBRARY) and _INSTALLED.isdisjoint(file.split(os.sep))


_LIBRARY = tuple({os.path.join(sysconfig.get_path(name), "") for name in ("stdlib", "platstdlib")})
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OWN = frozenset(vars(nn.Module()))
_DEPTH = 4


class _Slot(NamedTuple):
    """Hold a value by its name, with the container and the key that refer to it."""

    name: str
    container: Any
    key: Any
    value: Any


def _held_at(slot: _Slot, seen: set[int], depth: int = _DEPTH) -> list[Held]:
    """Return the tensors in a value: itself, or those inside of lists, dicts and objects with attributes, in a
    function's closure and in a method's object.
    """
    name, value = slot.name, slot.value
    if isinstance(value, torch.Tensor):
        kind: SavedKind = "parameter" if isinstance(value, nn.Parameter) else "buffer"
        return [Held(name, value, kind, [(slot.container, slot.key)])]
    if depth == 0 or isinstance(value, _LEAVES) or id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, nn.Module):
        return [*held_tensors(value, name), *_beside_modules(value, name, seen, _DEPTH)]
    if isinstance(value, MethodType) and not isinstance(value.__self__, torch.Tensor):
        return _held_at(slot._replace(value=value.__self__), seen, depth)
    return [held for inner in _inner(slot) for held in _held_at(inner, seen, depth - 1)]


def _beside_modules(module: nn.Module, name: str, seen: set[int], depth: int) -> list[Held]:
    """Return the tensors in attributes of a module, and of its submodules, that are neither tensors nor modules."""
    held: list[Held] = []
    for path, part in module.named_modules():
        where = ".".join(filter(None, (name, path)))
        for key, value in part.__dict__.items():
            if not isinstance(value, torch.Tensor) and key not in _OWN:
                slot = _Slot(f"{where}.{key}" if where else key, part.__dict__, key, value)
                held += _held_at(slot, seen, depth)
    return held


def _inner(slot: _Slot) -> list[_Slot]:
    """Return the parts of a value."""
    name, value = slot.name, slot.value
    if isinstance(value, FunctionType):
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=False)
        around = [_Slot(f"{name}.{variable}", cell, "cell_contents", contents_of(cell)) for variable, cell in cells]
        defaults = _Defaults(value)
        return [*around, *(_Slot(f"{name}.{parameter}", defaults, parameter, v) for parameter, v in defaults.items())]
    if isinstance(value, partial):
        held = [_Slot(f"{name}[{k}]", None, k, item) for k, item in enumerate(value.args) if not _is_tensor(item)]
        held += [_Slot(f"{name}.{k}", value.keywords, k, item) for k, item in value.keywords.items()]
        return [_Slot(f"{name}.func", None, "func", value.func), *held]
    if isinstance(value, (list, dict)):
        return [_Slot(f"{name}[{k!r}]", value, k, item) for k, item in _entries(value)]
    if isinstance(value, tuple):
        items = _TupleItems(slot.container, slot.key, value)
        return [_Slot(f"{name}[{k}]", items, k, item) for k, item in enumerate(value)]
    attributes: dict[str, Any] = getattr(value, "__dict__", {})
    return [_Slot(f"{name}.{k}", attributes, k, item) for k, item in list(attributes.items())]


class _TupleItems(dict[int, Any]):
    """Hold the items of a tuple; a replaced item is stored in a new tuple, which replaces the first."""

    def __init__(self, container: Any, key: Any, items: tuple[Any, ...]) -> None:
        super().__init__(enumerate(items))
        self._container, self._key, self._kind = container, key, type(items)

    def __setitem__(self, index: int, item: Any) -> None:
        super().__setitem__(index, item)
        is_named = hasattr(self._kind, "_fields")
        other = self._kind(*self.values()) if is_named else self._kind(self.values())
        _put([(self._container, self._key)], other)


class _Defaults(dict[str, Any]):
    """Hold the defaults of a function's parameters by name; a replacement becomes the function's default."""

    def __init__(self, function: FunctionType) -> None:
        code, defaults = function.__code__, function.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        super().__init__(zip(names, defaults, strict=True))
        self._function = function

    def __setitem__(self, parameter: str, value: Any) -> None:
        super().__setitem__(parameter, value)
        self._function.__defaults__ = tuple(self.values())


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


_LEAVES = (bool, int, float, complex, str, bytes, type(None), type, ModuleType, BuiltinFunctionType)


def contents_of(cell: CellType) -> Any:
    """Return the value of a closure variable; None if it was never assigned."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def variables_around(function: FunctionType) -> dict[str, Any]:
    """Return the closure variables of a function, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    return {name: contents_of(cell) for name, cell in cells}


def names_seen_by(function: FunctionType) -> dict[str, Any]:
    """Return everything that a function may read by name: of its module, and of its closure."""
    return {**function.__globals__, **variables_around(function)}


def _add(
    all_held: dict[int, Held], path: str, tensors: Mapping[str, Any], kind: SavedKind, container: Any = None
) -> None:
    for name, tensor in tensors.items():
        if isinstance(tensor, torch.Tensor):
            whole = f"{path}.{name}" if path else name
            held = all_held.setdefault(id(tensor), Held(whole, tensor, kind, plain=container is not None))
            held.slots.append((tensors if container is None else container, name))


def _entries(container: list[Any] | dict[Any, Any]) -> Iterable[tuple[Any, Any]]:
    return list(container.items() if isinstance(container, dict) else enumerate(container))


@contextmanager
def replaced(held: Iterable[Held], supply: Iterator[torch.Tensor]) -> Generator[None, None, None]:
    """Make every reference to one of the tensors refer to the next of `supply` inside.

    A module accepts the replacement of one of its parameters, like the parameter: `self.w = self.w.to(…)`.
    """
    before = list(held)
    assign = nn.Module.__setattr__

    def take(self: nn.Module, name: str, value: Any) -> None:
        if not isinstance(value, torch.Tensor) or self._parameters.get(name) is not value:
            assign(self, name, value)

    for item in before:
        _put(item.slots, next(supply))
    try:
        with mock.patch.object(nn.Module, "__setattr__", take):
            yield
    finally:
        for item in before:
            _put(item.slots, item.tensor)


def _put(slots: list[tuple[Any, Any]], value: Any) -> None:
    for container, key in slots:
        if isinstance(container, CellType):
            container.cell_contents = value
        elif container is not None:
            container[key] = value


@dataclass(frozen=True)
class Before:
    """Hold the state of modules before a call: their tensors by identity, without uninitialized ones."""

    modules: tuple[nn.Module, ...]
    known: frozenset[int]
    lazy: frozenset[int]

    def created(self) -> list[str]:
        """Return the names of the parameters that were added since, and of the buffers that have a size since."""
        parameters = [item for module in self.modules for item in module.named_parameters()]
        buffers = [item for module in self.modules for item in module.named_buffers() if id(item[1]) in self.lazy]
        return [name for name, t in (*parameters, *buffers) if id(t) not in self.known and not is_lazy(t)]


@contextmanager
def unchanged(modules: Iterable[nn.Module]) -> Generator[Before, None, None]:
    """Undo at the end the assignments inside to attributes of the modules: a cache, a hidden state."""
    outer = tuple(modules)
    parts = [part for module in outer for part in module.modules()]
    before = [(part, type(part), _copied(part.__dict__)) for part in parts]
    tensors = [t for part in parts for t in (*part._parameters.values(), *part._buffers.values()) if t is not None]
    lazy: list[tuple[Any, type, torch.Tensor]] = [(t, type(t), t.data) for t in tensors if is_lazy(t)]
    unsized = frozenset(id(tensor) for tensor, _, _ in lazy)
    try:
        yield Before(outer, frozenset(id(tensor) for tensor in tensors) - unsized, unsized)
    finally:
        for part, kind, copies in before:
            part.__class__ = kind
            attributes = part.__dict__
            attributes.clear()
            for name, (value, contents) in copies.items():
                attributes[name] = value
                if isinstance(value, list):
                    value[:] = contents
                elif isinstance(value, dict):
                    value.clear()
                    value.update(contents)
        for tensor, kind, data in lazy:
            if type(tensor) is not kind:
                tensor.data = data
                tensor.__class__ = kind


def _copied(attributes: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return each attribute, with a copy for lists and dicts."""
    return {n: (v, v.copy() if isinstance(v, (list, dict)) else None) for n, v in attributes.items()}
