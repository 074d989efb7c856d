"""Merge three texts: the generated one, its edited version, and the newly generated one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

EDITED, GENERATED = "edited", "generated"
"""The names of the two sides in the markers of a conflict."""

Owned = tuple[str, str]
"""A line, after the name of its function or class."""

_PLACE = re.compile(r"(\s*# [^\s:]+:)(\d+)(  .*\n?)")
"""A comment with a line number of the user's code, and its text."""
_STATEMENT = re.compile(r"[^\W\d]|[@\"']")
_DEFINITION = re.compile(r"(?:async )?(?:def|class) (\w+)")
_MARK = re.compile(r"(<{7}|>{7})( |$)")


@dataclass(frozen=True)
class Merged:
    """Hold a merged text. `kept` counts the edits in it that were not generated, without those in conflicts;
    `conflicts` are the first lines, from 1, of each conflict.
    """

    text: str
    kept: int = 0
    conflicts: tuple[int, ...] = ()


def merge(base: str, edited: str, generated: str) -> Merged:
    """Return `generated` with the changes from `base` to `edited`. If both changed the same lines, both sides are kept
    as a conflict.

    Lines end in a newline. A place in the user's code that has only moved is not a change.
    """
    if edited in (base, generated):
        return Merged(generated)
    new = _lines(generated)
    moved = _moved(_lines(base), new)
    old, own = _renumbered(_lines(base), moved), _renumbered(_lines(edited), moved)
    merged: list[str] = []
    conflicts: list[int] = []
    kept = 0
    for was, mine, theirs in _parts(_owned(old), _owned(own), _owned(new)):
        if mine in (theirs, was):
            merged += _texts(theirs)
        elif theirs == was:
            merged += _texts(mine)
            kept += 1
        else:
            conflicts.append(len(merged) + 1)
            edits, others = _closed(_texts(mine)), _closed(_texts(theirs))
            merged += [f"<<<<<<< {EDITED}\n", *edits, "=======\n", *others, f">>>>>>> {GENERATED}\n"]
    return Merged("".join(merged), kept, tuple(conflicts))


def conflicts_in(text: str) -> tuple[int, ...]:
    """Return the lines, from 1, with a remaining marker: the beginning of a conflict, or a marker without a
    beginning.
    """
    marks = [(n, match[1][0]) for n, line in enumerate(text.split("\n"), 1) if (match := _MARK.match(line))]
    befores = ["", *(mark for _, mark in marks)]
    return tuple(n for (n, mark), before in zip(marks, befores, strict=False) if mark == "<" or before != "<")


def _parts(
    base: Sequence[Owned], left: Sequence[Owned], right: Sequence[Owned]
) -> Iterator[tuple[Sequence[Owned], ...]]:
    """Yield the three texts in parts: stretches common to all three, and those between them."""
    texts, done = (base, left, right), (0, 0, 0)
    for *starts, size in _common(base, left, right):
        ends = tuple(start + size for start in starts)
        yield tuple(text[begin:start] for text, begin, start in zip(texts, done, starts, strict=True))
        yield tuple(text[start:end] for text, start, end in zip(texts, starts, ends, strict=True))
        done = ends


def _common(
    base: Sequence[Owned], left: Sequence[Owned], right: Sequence[Owned]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the start in each text and the length of each stretch common to all three; at last their ends."""
    both = [SequenceMatcher(None, base, other, autojunk=False).get_matching_blocks() for other in (left, right)]
    lefts, rights = map(iter, both)
    ours, theirs = next(lefts), next(rights)
    while ours.size and theirs.size:
        start, end = max(ours.a, theirs.a), min(ours.a + ours.size, theirs.a + theirs.size)
        if start < end:
            yield start, start - ours.a + ours.b, start - theirs.a + theirs.b, end - start
        if ours.a + ours.size < theirs.a + theirs.size:
            ours = next(lefts)
        else:
            theirs = next(rights)
    yield len(base), len(left), len(right), 0


def _texts(lines: Sequence[Owned]) -> list[str]:
    return [line for _, line in lines]


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [*(line + "\n" for line in lines[:-1]), *filter(None, lines[-1:])]


def _closed(lines: Sequence[str]) -> list[str]:
    """Return lines with a newline after the last one, because a marker follows."""
    return [line if line.endswith("\n") else line + "\n" for line in lines]


def _moved(old: Sequence[str], new: Sequence[str]) -> Mapping[tuple[str, str, str], str]:
    """Return the places with another line number in `new`, matched in order by their text, if both have
    equally many.
    """
    before, after = _places(old), _places(new)
    return {
        (start, number, rest): now
        for (start, rest), numbers in before.items()
        if len(after.get((start, rest), ())) == len(numbers)
        for number, now in zip(numbers, after[start, rest], strict=True)
    }


def _places(lines: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    numbers_by_place: dict[tuple[str, str], list[str]] = {}
    for place in filter(None, map(_PLACE.fullmatch, lines)):
        numbers = numbers_by_place.setdefault((place[1].strip(), place[3]), [])
        if place[2] not in numbers:
            numbers.append(place[2])
    return {key: sorted(numbers, key=int) for key, numbers in numbers_by_place.items()}


def _renumbered(lines: Sequence[str], moved: Mapping[tuple[str, str, str], str]) -> list[str]:
    def now(line: str) -> str:
        place = _PLACE.fullmatch(line)
        if place is None:
            return line
        start, number, rest = place.groups()
        return f"{start}{moved.get((start.strip(), number, rest), number)}{rest}"

    return [now(line) for line in lines]


def _owned(lines: Sequence[str]) -> list[Owned]:
    """Return each line with the name of its function or class, "" without one.

    Kernels of one file are alike, so a line only matches a line in the definition of the same name.
    """
    owned: list[Owned] = []
    block: list[str] = []
    owner = ""
    for line in reversed(lines):
        block.append(line)
        if _STATEMENT.match(line):
            definition = _DEFINITION.match(line)
            owner = definition[1] if definition else owner if line.startswith("@") else ""
            owned += [(owner, part) for part in block]
            block = []
    return [*(("", part) for part in reversed(block)), *reversed(owned)]
