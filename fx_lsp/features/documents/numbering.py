"""Separate text from its numbers, so that `h_1 = tanh(add)` and `h_2 = tanh(add_1)` have one pattern and different
numbers.

A name without a number at its end counts as numbered 0, as in PyTorch: `mm`, `mm_1`, `mm_2`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

HOLE, HOLE_OF_ZERO = "\0", "\1"

_TOKEN = re.compile(r"'[^']*'|\"[^\"]*\"|[A-Za-z_][\w.]*|-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?")
_INTEGER = re.compile(r"-?[1-9]\d*|0")
_INSIDE_NAME = re.compile(r"(?<!\d)(0|[1-9]\d*)(?!\d)")


class Numbered(NamedTuple):
    """Hold a text without its integers. Equal patterns and numbers mean equal texts.

    `pattern` has a hole in place of each of `numbers`: HOLE_OF_ZERO for a zero at the end of a name (`x_0`), because a
    missing number there also means 0.
    """

    pattern: str
    numbers: tuple[int, ...]

    @property
    def holes(self) -> list[str]:
        """Return the holes of the pattern, in order."""
        return [c for c in self.pattern if c in (HOLE, HOLE_OF_ZERO)]

    @property
    def loose(self) -> str:
        """Return the pattern for comparing texts with other numbers; a written and an unwritten zero are alike."""
        return self.pattern.replace(HOLE_OF_ZERO, HOLE)


def number(text: str) -> Numbered:
    """Separate `text` from its integers; numbers with a fraction, quoted text and dotted names stay."""
    if text.isidentifier():
        return _name(text)
    numbers: list[int] = []

    def replace(match: re.Match[str]) -> str:
        token = match.group()
        if token.isidentifier():
            inside = _name(token)
            numbers.extend(inside.numbers)
            return inside.pattern
        if _INTEGER.fullmatch(token):
            numbers.append(int(token))
            return HOLE
        return token

    pattern = _TOKEN.sub(replace, text)
    return Numbered(pattern, tuple(numbers))


class Remembered(dict[str, Numbered]):
    """Cache `number` by text."""

    def __missing__(self, text: str) -> Numbered:
        numbered = self[text] = number(text)
        return numbered


def skeleton(text: str) -> str:
    """Return `text` without its names, numbers and quoted strings."""
    return _TOKEN.sub(HOLE, text)


def tokens(text: str) -> list[str]:
    """Return the names, numbers and quoted strings of `text`, in order."""
    return _TOKEN.findall(text)


def _name(name: str) -> Numbered:
    stem, underscore, end = name.rpartition("_")
    if not underscore or not _INTEGER.fullmatch(end):
        stem, end = name, ""
    with_zero, with_hole, numbers = _stem(stem)
    return Numbered(with_zero if end == "0" else with_hole, (*numbers, int(end or 0)))


@lru_cache(maxsize=1 << 12)
def _stem(stem: str) -> tuple[str, str, tuple[int, ...]]:
    parts = _INSIDE_NAME.split(stem)
    pattern = HOLE.join(parts[::2])
    return f"{pattern}_{HOLE_OF_ZERO}", f"{pattern}_{HOLE}", tuple(int(part) for part in parts[1::2])
