"""Replace libraries for command lines and processes that call functions of a program with their own arguments.

While a program is traced, they call those functions at once, in this process, with defaults.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

Invent = Callable[[str, Any, Any], Any]
"""Returns a made-up value for an argument from its name, its type and its choices."""
_REQUIRED = inspect.Parameter.empty


Replacement = Callable[..., Any]
"""Called in place of a function: with the original, then its arguments."""


@dataclass
class Launchers:
    """Replace such functions, in place: programs have imported them under other names. `invent` makes up values of
    required arguments. Each module is inspected once.
    """

    invent: Invent
    _modules: set[str] = field(default_factory=set[str])
    _codes: list[tuple[FunctionType, CodeType, Any]] = field(default_factory=list["tuple[FunctionType, CodeType, Any]"])

    def replace(self) -> None:
        """Replace the functions of the modules that are loaded by now."""
        fresh = sys.modules.keys() - self._modules
        self._modules |= fresh
        for name in fresh:
            module, last = sys.modules.get(name), name.rpartition(".")[2]
            for kind in _KINDS:
                if kind.module == last and all(hasattr(module, sign) for sign in kind.signs):
                    holder: Any = getattr(module, kind.holder) if kind.holder else module
                    function = inspect.getattr_static(holder, kind.name, None)
                    if isinstance(function, FunctionType) and _key(function) not in _REPLACED:
                        self._replace(function, kind.replacement(self.invent))

    def _replace(self, function: FunctionType, replacement: Replacement) -> None:
        code = function.__code__
        original = FunctionType(
            code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
        )
        original.__kwdefaults__ = function.__kwdefaults__
        _REPLACED[_key(function)] = replacement, original
        self._codes.append((function, code, function.__defaults__))
        constants = tuple(_key(function) if constant == _KEY else constant for constant in _instead.__code__.co_consts)
        free = code.co_freevars
        function.__code__ = _instead.__code__.replace(co_name=code.co_name, co_consts=constants, co_freevars=free)
        function.__defaults__ = None

    def restore(self) -> None:
        """Restore the replaced functions."""
        for function, code, defaults in self._codes:
            function.__code__, function.__defaults__ = code, defaults
            del _REPLACED[_key(function)]
        self._codes.clear()


_REPLACED: dict[str, tuple[Replacement, Any]] = {}
_KEY = "key"


def _key(function: FunctionType) -> str:
    return str(id(function))


def _instead(*args: Any, **kwargs: Any) -> Any:
    import fx_lsp.tracer.program.processes.launchers

    replacement, original = fx_lsp.tracer.program.processes.launchers._REPLACED["key"]
    return replacement(original, *args, **kwargs)


def _spawned(original: Any, fn: Callable[..., Any], args: tuple[Any, ...] = (), *rest: Any, **options: Any) -> Any:
    """Run the first of several processes here."""
    return fn(0, *args)


def _worker(
    original: Any, process: Any, group: Any = None, target: Any = None, name: Any = None, *rest: Any, **options: Any
) -> None:
    """Call the target function of a process."""
    original(process, group, target, name, *rest, **options)
    if target is not None:
        target(*process._args, **process._kwargs)


def _started(original: Any, process: Any) -> None:
    """Run a process without a target function."""
    if process._target is None:
        process.run()


def _joined(original: Any, process: Any, *rest: Any, **options: Any) -> None:
    """Return at once: the process has run."""


def _run_main(original: Any, main: Callable[..., Any], *rest: Any, **options: Any) -> Any:
    """Call a function with the rest of the command line; flags have their defaults."""
    return main(sys.argv[:1])


@dataclass(frozen=True)
class _Component:
    """Call the function whose signature is a command line."""

    invent: Invent

    def __call__(self, original: Any, component: Any = None, *rest: Any, **options: Any) -> Any:
        """Call a function with its defaults."""
        if not callable(component):
            return None
        parameters = inspect.signature(component).parameters.values()
        required = (p for p in parameters if p.default is _REQUIRED and p.kind is not p.VAR_KEYWORD)
        required_values = [self.invent(p.name, p.annotation, ()) for p in required if p.kind is not p.VAR_POSITIONAL]
        return component(*required_values)


@dataclass(frozen=True)
class _Commands:
    """Parse the options that decorate a function."""

    invent: Invent

    def __call__(self, original: Any, command: Any, name: Any, args: Any, parent: Any = None, **options: Any) -> Any:
        """Parse the command line of the command, or of the first of several, with a value for each required option."""
        words = [*args] if parent is not None or args else self._satisfied(command)
        return original(command, name, words, parent, **options)

    def _satisfied(self, command: Any) -> list[str]:
        for parameter in command.params:
            parameter.prompt = None
            kind = getattr(parameter, "type", None)
            if parameter.required:
                choices = tuple(getattr(kind, "choices", ()))
                parameter.default = self.invent(parameter.name, _conversion(parameter), choices)
                parameter.required = False
            for demand in ("exists", "writable", "readable"):
                if hasattr(kind, demand):
                    setattr(kind, demand, False)
        inner: dict[str, Any] = getattr(command, "commands", {})
        for name, chosen in inner.items():
            return [name, *self._satisfied(chosen)]
        return []


def _conversion(parameter: Any) -> Any:
    """Return the conversion of a text option: its type, or the annotation that it was created from."""
    kind = getattr(parameter, "type", None)
    if hasattr(kind, "convert"):
        return _Converted(kind) if getattr(kind, "name", "") != "text" else None
    return getattr(getattr(parameter, "type_descriptor", None), "annotation", None)


@dataclass(frozen=True)
class _Converted:
    """The type of an option, as a function of text."""

    kind: Any

    def __call__(self, text: str) -> Any:
        return self.kind.convert(text, None, None)


def _composed(original: Any, config_path: Any = None, config_name: Any = None, *rest: Any, **options: Any) -> Any:
    """Return a decorator that calls a function with a composed configuration, without an output folder."""

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


@dataclass(frozen=True)
class _Kind:
    """Describe a function that starts others: in a module of that last name, which also has the names `signs`.

    It is an attribute of that module, or of its class `holder`.
    """

    module: str
    signs: tuple[str, ...]
    holder: str
    name: str
    replacement: Callable[[Invent], Replacement]


_KINDS = (
    _Kind("spawn", ("start_processes",), "", "start_processes", lambda invent: _spawned),
    _Kind("spawn", ("start_processes", "spawn"), "", "spawn", lambda invent: _spawned),
    _Kind("process", ("BaseProcess",), "BaseProcess", "__init__", lambda invent: _worker),
    _Kind("process", ("BaseProcess",), "BaseProcess", "start", lambda invent: _started),
    _Kind("process", ("BaseProcess",), "BaseProcess", "join", lambda invent: _joined),
    _Kind("core", ("Command", "Parameter"), "Command", "make_context", _Commands),
    _Kind("core", ("Fire",), "", "Fire", _Component),
    _Kind("app", ("UsageError",), "", "run", lambda invent: _run_main),
    _Kind("main", ("DictConfig",), "", "main", lambda invent: _composed),
)
