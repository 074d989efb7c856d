"""Plan the configurations of the project that a parameter may mean."""

from __future__ import annotations

import ast
import copy
import importlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from fx_lsp import files
from fx_lsp.configurations import UNKNOWN, Reads, Values, fitting, open_names, reads_from
from fx_lsp.model import Configuration, TraceRequest
from fx_lsp.tracer.inputs.plan.configs import AttributeDict, completed, value_for
from fx_lsp.tracer.inputs.plan.plans import Plan, ValuePlan, readable
from fx_lsp.tracer.inputs.plan.values import needs_nothing


def fitting_plans(
    request: TraceRequest, module: ModuleType, construct: Callable[[type], Any]
) -> Callable[[str], Sequence[Plan]]:
    """Return the plans for a parameter that may mean a configuration of the project, the most plausible first."""

    def plans(parameter: str) -> Iterator[ValuePlan]:
        for fit in request.fits:
            if fit.parameter == parameter:
                reads = reads_from(json.loads(fit.reads))
                for place in fit.configurations:
                    with suppress(Exception):
                        yield from _plans(place, reads, module, construct)

    def distinct(parameter: str) -> tuple[Plan, ...]:
        by_text = {plan.shown: plan for plan in reversed([*plans(parameter)])}
        is_only = sum(plan.certain for plan in by_text.values()) == 1
        return tuple(replace(plan, certain=plan.certain and is_only) for plan in reversed(by_text.values()))

    return cache(distinct)


def _plans(
    place: Configuration, reads: Reads, module: ModuleType, construct: Callable[[type], Any]
) -> Iterator[ValuePlan]:
    """Yield the plan for a configuration; it is certain if it has no guesses."""
    if place.name:
        cls: type = getattr(importlib.import_module(place.module), place.name)
        construct(cls)
        detail = f"the class in {place.shown} with the attributes that the code reads"
        yield ValuePlan(lambda: construct(cls), f"{cls.__name__}()", "annotation", detail, needs_nothing(cls))
        yield from completed(cls)
        return
    values = ast.literal_eval(place.values) if place.values else fitting(read_configuration(place.file), reads)
    if values is None:
        return
    where = f"{place.shown}:{place.line}" if place.line else place.shown
    guesses = open_names(values, reads)
    values = _filled(values, reads, module)
    make = _Namespace(values) if place.arguments else _Settings(values, reads)
    detail = f"{where}, which has {'some of ' if guesses else ''}the attributes that the code reads"
    yield ValuePlan(make, _shown(values, reads), "search" if guesses else "annotation", detail, not guesses)


def _filled(values: Values, reads: Reads, module: ModuleType) -> dict[str, Any]:
    """Return the values, with guesses for unwritten ones that are read."""
    filled: dict[str, Any] = {}
    for name, value in values.items():
        inner = reads.parts.get(name, Reads())
        if isinstance(value, Mapping):
            filled[name] = _filled(value, inner, module)
        elif value is not UNKNOWN:
            filled[name] = value
        elif name in reads.parts:
            filled[name] = value_for(name, module)
    return filled


class _Namespace:
    """Create the arguments of a command line at each call."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def __call__(self) -> SimpleNamespace:
        return SimpleNamespace(**copy.deepcopy({**self._values}))


class _Settings:
    """Create a dictionary at each call; its items are also attributes if they are read as such."""

    def __init__(self, values: Values, reads: Reads) -> None:
        self._values, self._is_plain = values, _is_plain(reads)

    def __call__(self) -> dict[str, Any]:
        return copy.deepcopy({**self._values}) if self._is_plain else _attributes(self._values)


def _is_plain(reads: Reads) -> bool:
    return all(_is_plain(inner) for inner in reads.parts.values() if inner.parts) and reads.by_key


def _attributes(values: Any) -> Any:
    """Return the values with every dictionary among them also readable by attribute."""
    if isinstance(values, Mapping):
        return AttributeDict({name: _attributes(inner) for name, inner in values.items()})
    if isinstance(values, (list, tuple)):
        return type(values)(_attributes(item) for item in values)
    return copy.deepcopy(values)


def _shown(values: Values, reads: Reads) -> str:
    """Return the read part of a configuration as source text."""
    parts: dict[str, str] = {}
    for name in sorted(reads.parts.keys() & values.keys()):
        inner, value = reads.parts[name], values[name]
        parts[name] = _shown(value, inner) if isinstance(value, Mapping) and inner.parts else readable(value)
    if reads.by_key:
        return "{" + ", ".join(f"{name!r}: {text}" for name, text in parts.items()) + "}"
    return f"SimpleNamespace({', '.join(f'{name}={text}' for name, text in parts.items())})"


def read_configuration(file: str) -> Any:
    """Return the content of a configuration file, merged with those that its defaults name; None if unreadable."""
    path = Path(file)
    values = _parsed(path)
    defaults = values.get("defaults") if isinstance(values, dict) else None
    if not isinstance(defaults, list):
        return _resolved(values)
    composed: dict[str, Any] = {}
    own = {name: value for name, value in values.items() if name != "defaults"}
    for entry in [*defaults, *(() if "_self_" in defaults else ("_self_",))]:
        if entry == "_self_":
            _merge(composed, own)
        elif isinstance(entry, str):
            _merge(composed, read_configuration(str(path.with_name(entry).with_suffix(path.suffix))))
        elif isinstance(entry, dict):
            for group, choice in entry.items():
                name = str(group).split()[-1].partition("@")[0].strip("/")
                inner = read_configuration(str(path.parent / name / f"{choice}{path.suffix}"))
                _merge(composed, {name: inner} if inner is not None else {})
    return _resolved(composed)


def _merge(values: dict[str, Any], others: Any) -> None:
    for name, other in others.items() if isinstance(others, dict) else ():
        inner = values.get(name)
        if isinstance(inner, dict) and isinstance(other, dict):
            _merge(inner, other)
        else:
            values[name] = other


def _parsed(path: Path) -> Any:
    """Return a file as data, parsed by the user's interpreter; None if unreadable."""
    try:
        text = files.read_text(path)
        if path.suffix == ".json":
            return json.loads(text)
        if path.suffix == ".toml":
            return importlib.import_module("tomllib").loads(text)
        return importlib.import_module("yaml").safe_load(text)
    except Exception:
        return None


def _resolved(values: Any) -> Any:
    """Return the values with each `${model.dim}` replaced by its value, if it exists."""

    def look_up(path: str) -> Any:
        part: Any = values
        for name in path.split("."):
            part = part[name]
        return part

    def replaced(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: replaced(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [replaced(item) for item in value]
        if isinstance(value, str) and value.startswith("${") and value.endswith("}") and ":" not in value:
            with suppress(KeyError, TypeError):
                return look_up(value[2:-1])
        return value

    return replaced(values)
