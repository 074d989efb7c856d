"""Find tables of decompositions: the functions traced in place of operations."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch._decomp import core_aten_decompositions


def find_table(name: str) -> dict[Any, Any]:
    """Return the decompositions of `core` or `module.attribute`: a table, or a function that returns one.

    Raises ValueError if there are none.
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
