"""Unwrap callables to functions."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from torch._library.custom_ops import CustomOpDef


def is_operator(function: Any) -> bool:
    """Return True for the result of `torch.library.custom_op`."""
    return isinstance(function, CustomOpDef)


def innermost(function: Any) -> Any:
    """Return the function that finally runs, under bound methods, `functools.partial` and decorators that use
    `functools.wraps`.
    """
    while True:
        if is_operator(function):
            under = function._init_fn
        else:
            under = function.func if isinstance(function, partial) else getattr(function, "__func__", function)
        under = inspect.unwrap(under)
        if under is function:
            return function
        function = under
