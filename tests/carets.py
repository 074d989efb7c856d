"""Texts below the places in a source that they are shown at: comments with carets."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fx_lsp.features.wording.problems import Problem

WIDTH = 118
"""The longest line that a comment may have."""
_COMMENT = re.compile(r"^ *# *\^+ .*\n( *#  .*\n)*", re.MULTILINE)


class Shown(NamedTuple):
    """Describe a text that is shown at columns of a line; its first word is its kind."""

    line: int
    start: int
    end: int
    text: str


def stripped(text: str) -> str:
    """Return a source without the comments below its places."""
    return _COMMENT.sub("", text)


def places(text: str, kind: str) -> Iterator[tuple[int, int, int]]:
    """Yield the line of the stripped source, and the columns, of each place with a comment of a kind."""
    for comment in re.finditer(rf"^( *# *)(\^+) {kind}\b", text, re.MULTILINE):
        above = stripped(text[: comment.start()]).count("\n")
        yield above, len(comment[1]), len(comment[1]) + len(comment[2])


def of_problem(problem: Problem, text: str, folder: str) -> Shown:
    """Return a problem of a text, with its related places; paths in `folder` are relative to it."""
    span, row = problem.span, text.splitlines()[problem.span.line - 1]
    start = len(row.encode()[: span.col].decode())
    end = len(row.encode()[: span.end_col].decode()) if span.end_line == span.line else len(row)
    related = (f"line {other.span.line}: {other.message}" for other in problem.related)
    said = "\n".join([f"{problem.severity}[{problem.code}]: {problem.message}", *related])
    return Shown(span.line, start, end, said.replace(folder, ""))


def annotated(text: str, shown: Iterable[Shown]) -> str:
    """Return a stripped source with comments below the places of what is shown."""
    by_line: dict[int, list[Shown]] = {}
    for one in shown:
        by_line.setdefault(one.line, []).append(one)
    rows: list[str] = []
    for number, row in enumerate(text.splitlines(), start=1):
        rows.append(row)
        for one in by_line.get(number, ()):
            rows += _comment(row, one)
    return "\n".join(rows) + "\n"


def _comment(row: str, shown: Shown) -> list[str]:
    indent = " " * max(min(shown.start - 1, len(row) - len(row.lstrip())), 0)
    carets = f"{indent}#".ljust(shown.start) + "^" * max(shown.end - max(shown.start, 1), 1)
    first, *others = [line for line in shown.text.splitlines() if line.strip()]
    if len(carets) + 1 + len(first) > WIDTH:
        kind, _, rest = first.partition(" ")
        first, others = kind, [rest, *others]
    width = WIDTH - len(indent) - 3
    return [f"{carets} {first}", *(f"{indent}#  {part}" for line in others for part in _wrapped(line, width))]


def _wrapped(line: str, width: int) -> list[str]:
    return textwrap.wrap(line, width, break_long_words=False, break_on_hyphens=False)
