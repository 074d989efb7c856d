"""Plan NumPy arrays for parameters that code uses as such. Their values are real, like those of a schedule or
a table.
"""

from __future__ import annotations

import inspect
import math
import operator
import sys
from types import ModuleType
from typing import Any

import torch

from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import ValuePlan

LENGTH = 64
"""The number of items of an array."""
_TAKE_ARRAYS = ("append", "array", "asarray", "ascontiguousarray", "cumprod", "cumsum", "diff", "flip", "from_numpy")
"""Functions that take arrays, or values that become one, and no single number."""


def array_plans(annotation: Any, facts: Facts, module: ModuleType) -> list[ValuePlan]:
    """Return the plan for a parameter that is annotated as an array, passed to a function that takes arrays, or sliced
    with a negative step, which tensors do not support; else none.
    """
    is_annotated = annotation is not inspect.Parameter.empty and annotation is _of_numpy("ndarray")
    is_array = is_annotated or ("reversed" in facts.uses and _of_numpy("ndarray") is not None)
    if not is_array and not any(_takes_arrays(path, place, module) for path, place in facts.handed):
        return []
    rank = facts.rank or max(facts.min_rank, 1)
    shape = (LENGTH, *(4 * (n + 1) for n in range(rank - 1)))
    text = f"np.linspace(0.01, 0.99, {math.prod(shape)})" + (f".reshape{shape}" if rank > 1 else "")

    def make() -> Any:
        numbers = _of_numpy("linspace")(0.01, 0.99, math.prod(shape))
        return numbers.reshape(shape)

    return [ValuePlan(make, text, "search", "used as an array")]


def _of_numpy(name: str) -> Any:
    """Return an attribute of NumPy; None if no code imported NumPy, or it has none."""
    return getattr(sys.modules.get("numpy"), name, None)


def _takes_arrays(path: str, place: int | str, module: ModuleType) -> bool:
    """Return True if the first argument of a function is an array, by the function's name in a module."""
    try:
        function = operator.attrgetter(path)(module)
    except AttributeError:
        return False
    taking = (_of_numpy(name) if name != "from_numpy" else torch.from_numpy for name in _TAKE_ARRAYS)
    return place == 0 and function is not None and any(function is other for other in taking)
