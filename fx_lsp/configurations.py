"""Match the names that code reads of a configuration with objects that have those names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

UNKNOWN: Any = ...
"""Placeholder for a value that exists under its name but is not written down."""
MAX_DEPTH = 4
"""The largest depth at which a parameter is looked up in a configuration."""
Values: TypeAlias = "Mapping[str, Any]"


@dataclass
class Reads:
    """Hold the names that are read of a value, each with the names that are read of that in turn.

    A name that is not `needed` has a default at its read. The value is read `by_key` (`config["dim"]`), or by attribute
    (`config.dim`).
    """

    parts: dict[str, Reads] = field(default_factory=dict[str, "Reads"])
    needed: bool = False
    by_key: bool = False

    def part(self, name: str, needed: bool = True) -> Reads:
        """Return the reads of the part `name`, which is added if missing."""
        part = self.parts.setdefault(name, Reads())
        part.needed |= needed
        return part

    def required(self) -> Iterator[str]:
        """Yield the required names at any depth."""
        for name, inner in self.parts.items():
            if inner.needed:
                yield name
                yield from inner.required()

    def to_data(self) -> dict[str, Any]:
        """Return the reads as plain data."""
        parts = {name: inner.to_data() for name, inner in self.parts.items()}
        return {"parts": parts, "needed": self.needed, "by_key": self.by_key}


def reads_from(data: Mapping[str, Any]) -> Reads:
    """Return the inverse of `Reads.to_data`."""
    parts = {name: reads_from(inner) for name, inner in data["parts"].items()}
    return Reads(parts, data["needed"], data["by_key"])


def fitting(values: Any, reads: Reads) -> Values | None:
    """Return the configuration, or its part nearest to the top, that has all needed names; None if no part has them."""
    level: list[Any] = [values]
    for _ in range(MAX_DEPTH):
        for part in level:
            if isinstance(part, Mapping) and has_all(part, reads):
                return cast("Values", part)
        level = [inner for part in level if isinstance(part, Mapping) for inner in cast("Values", part).values()]
    return None


def has_all(values: Any, reads: Reads) -> bool:
    """Return True if every needed name exists, at every depth."""
    if values is UNKNOWN:
        return True
    if not isinstance(values, Mapping):
        return all(hasattr(values, name) for name, inner in reads.parts.items() if inner.needed)
    return all(name in values and has_all(values[name], inner) for name, inner in reads.parts.items() if inner.needed)


def open_names(values: Values, reads: Reads) -> int:
    """Return the number of read names whose value is `UNKNOWN`."""
    count = 0
    for name, inner in reads.parts.items():
        value = values.get(name)
        count += value is UNKNOWN
        count += open_names(cast("Values", value), inner) if isinstance(value, Mapping) else 0
    return count
