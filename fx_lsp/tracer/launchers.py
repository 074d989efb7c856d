"""What starts a program's functions with arguments of its own: libraries of command lines, and processes that run a
worker. While a program is traced they call those functions at once, in this process, with defaults."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

Invent = Callable[[str, Any, Any], Any]
"""Makes up a value for an argument from its name, its type and its choices."""
_REQUIRED = inspect.Parameter.empty


@dataclass
class Launchers:
    """The functions that were replaced, by what they were; `invent` makes up what a function requires."""

    invent: Invent
    _replaced: dict[int, tuple[FunctionType, Any]] = field(default_factory=dict[int, "tuple[FunctionType, Any]"])

    def replace(self) -> None:
        """Replace what the modules that are loaded by now have of them."""
        for function, replacement in _launchers(self):
            if id(function) not in self._replaced:
                self._replaced[id(function)] = function, (function.__code__, function.__defaults__)
                original = FunctionType(
                    function.__code__,
                    function.__globals__,
                    function.__name__,
                    function.__defaults__,
                    function.__closure__,
                )
                original.__kwdefaults__ = function.__kwdefaults__
                function.__globals__.setdefault(_KEY, {})[function.__code__.co_name] = (replacement, original)
                function.__code__, function.__defaults__ = _instead.__code__.replace(co_name=original.__name__), None
                function.__globals__.setdefault("_sys_of_launchers", sys)

    def restore(self) -> None:
        """Put back what was replaced."""
        for function, (code, defaults) in self._replaced.values():
            function.__code__, function.__defaults__ = code, defaults
        self._replaced.clear()


_KEY = "_launchers_replaced"


def _instead(*args: Any, **kwargs: Any) -> Any:
    name = _sys_of_launchers._getframe().f_code.co_name  # type: ignore[name-defined]  # noqa: F821
    replacement, original = _launchers_replaced[name]  # type: ignore[name-defined]  # noqa: F821
    return replacement(original, *args, **kwargs)


def _launchers(launchers: Launchers) -> Iterator[tuple[FunctionType, Callable[..., Any]]]:
    """The functions to replace, each with what is called in its place: with the original, then its arguments."""
    for name, module in list(sys.modules.items()):
        last = name.rpartition(".")[2]
        if last == "spawn" and (spawn := getattr(module, "start_processes", None)) is not None:
            yield from ((f, _spawned) for f in (spawn, getattr(module, "spawn", None)) if isinstance(f, FunctionType))
        elif last == "process" and (process := getattr(module, "BaseProcess", None)) is not None:
            yield from ((process.start, _started), (process.join, _joined))
        elif last == "core" and hasattr(module, "Command") and hasattr(module, "Parameter"):
            main = inspect.getattr_static(module.Command, "main", None)
            if isinstance(main, FunctionType):
                yield main, _Commands(launchers.invent)
        elif last == "core" and isinstance(fire := getattr(module, "Fire", None), FunctionType):
            yield fire, _Component(launchers.invent)
        elif last == "app" and isinstance(run := getattr(module, "run", None), FunctionType) and hasattr(module, "UsageError"):
            yield run, _run_main
        elif last == "main" and hasattr(module, "DictConfig") and isinstance(getattr(module, "main", None), FunctionType):
            yield module.main, _composed


def _spawned(original: Any, fn: Callable[..., Any], args: tuple[Any, ...] = (), *rest: Any, **options: Any) -> Any:
    """What starts processes: the first of them here."""
    return fn(0, *args)


def _started(original: Any, process: Any) -> None:
    """What starts a process: its worker here."""
    process.run()


def _joined(original: Any, process: Any, *rest: Any, **options: Any) -> None:
    """What waits for a process: it has run."""


def _run_main(original: Any, main: Callable[..., Any], *rest: Any, **options: Any) -> Any:
    """What parses flags, which have their defaults here, and calls a function with the rest of the command line."""
    return main(sys.argv[:1])


@dataclass(frozen=True)
class _Component:
    """What makes a command line of a function's signature."""

    invent: Invent

    def __call__(self, original: Any, component: Any = None, *rest: Any, **options: Any) -> Any:
        """Call a function with its defaults."""
        if not callable(component):
            return None
        parameters = inspect.signature(component).parameters.values()
        required = (p for p in parameters if p.default is _REQUIRED and p.kind is not p.VAR_KEYWORD)
        given = [self.invent(p.name, p.annotation, ()) for p in required if p.kind is not p.VAR_POSITIONAL]
        return component(*given)


@dataclass(frozen=True)
class _Commands:
    """What calls a function with options that stand as decorators over it."""

    invent: Invent

    def __call__(self, original: Any, command: Any, args: Any = None, *rest: Any, **options: Any) -> Any:
        """Run the command, or the first of several, with a value for everything that it requires."""
        words = [*args] if args is not None else self._satisfied(command)
        return original(command, words, prog_name=sys.argv[0], standalone_mode=False)

    def _satisfied(self, command: Any) -> list[str]:
        for parameter in command.params:
            parameter.prompt = None
            if parameter.required:
                kind = parameter.type
                choices = tuple(getattr(kind, "choices", ()))
                default = self.invent(parameter.name, getattr(kind, "convert", None) and _Converted(kind), choices)
                parameter.default, parameter.required = default, False
            for demand in ("exists", "writable", "readable"):
                if hasattr(parameter.type, demand):
                    setattr(parameter.type, demand, False)
        inner: dict[str, Any] = getattr(command, "commands", {})
        for name, chosen in inner.items():
            return [name, *self._satisfied(chosen)]
        return []


@dataclass(frozen=True)
class _Converted:
    """The type of an option, as a function of text."""

    kind: Any

    def __call__(self, text: str) -> Any:
        return self.kind.convert(text, None, None)


def _composed(original: Any, config_path: Any = None, config_name: Any = None, *rest: Any, **options: Any) -> Any:
    """What calls a function with a configuration that is composed of files: without a folder for what it writes."""

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(config: Any = None) -> Any:
            return function(config if config is not None else _composition(function, config_path, config_name))

        run.__wrapped__ = function  # type: ignore[attr-defined]
        run.__name__ = function.__name__
        return run

    return decorator


def _composition(function: Callable[..., Any], config_path: Any, config_name: Any) -> Any:
    hydra: Any = sys.modules["hydra"]
    folder = os.path.dirname(os.path.abspath(function.__code__.co_filename))
    place = os.path.join(folder, config_path) if isinstance(config_path, str) else folder
    with suppress(Exception):
        sys.modules["hydra.core.global_hydra"].GlobalHydra.instance().clear()
    with hydra.initialize_config_dir(config_dir=os.path.normpath(place), version_base=None):
        return hydra.compose(config_name=config_name if isinstance(config_name, str) else None)
