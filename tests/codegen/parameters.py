"""Parameters of tests, of which some are for each run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some(values: Iterable[Any], plain: Collection[Any], several: bool = False) -> list[Any]:
    """All values as parameters of a test, `several` at a time: `plain` in each run, the others before a release."""
    marks = [(value, () if value in plain else pytest.mark.release) for value in values]
    return [pytest.param(*(value if several else (value,)), marks=mark) for value, mark in marks]
