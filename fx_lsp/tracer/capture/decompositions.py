"""Tables of decompositions: which function is traced in place of an operation."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch._decomp import core_aten_decompositions


def find_table(name: str) -> dict[Any, Any]:
    """Return the decompositions that `core` or `module.attribute` stands for: a table, or a function that makes one.

    Raises ValueError where there are none.
    """
    if name == "core":
        return dict(core_aten_decompositions().items())
    module, _, attribute = name.rpartition(".")
    try:
        value: Any = getattr(import_module(module), attribute)
        table: Any = value() if callable(value) else value
        return dict(table)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{name!r} is not a table of decompositions: {error}") from error
