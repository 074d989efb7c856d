"""Pattern and replacement of a rewriting, in every form that the user may write them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def rewrite(subject: Any, more: list[Any]) -> tuple[Any, Any, list[Callable[..., bool]]]:
    """Pattern, replacement and filters: of a tuple `(pattern, replacement, filters…)`, or of separate definitions.

    Raises TypeError where there is no replacement.
    """
    parts = [*subject, *more] if isinstance(subject, (tuple, list)) else [subject, *more]
    if len(parts) < 2:
        raise TypeError("a rewriting is a pattern and a replacement")
    pattern, replacement, *rest = parts
    filters = [f for item in rest for f in (item if isinstance(item, (tuple, list)) else [item])]
    return pattern, replacement, filters
