"""What is under a callable."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any


def innermost(function: Any) -> Any:
    """The function that runs in the end, under bound methods, `functools.partial` and decorators that say so."""
    while True:
        under = function.func if isinstance(function, partial) else getattr(function, "__func__", function)
        under = inspect.unwrap(under)
        if under is function:
            return function
        function = under
