"""Define questions about a target, and the keys of their answers."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from fx_lsp.model import Work, read_work, variant_of, variant_work, write_work

_LINES = re.compile(r"(\d+)-(\d+)")
"""A part of work that refers to some lines of the target's file."""


@dataclass(frozen=True)
class TargetQuestion:
    """Identify a question about a target of a file: its trace or, with `work`, a further result."""

    target: str
    work: Work = ""

    def __str__(self) -> str:
        return f"{self.target} {self.work}".rstrip()

    @property
    def variant(self) -> str:
        """Return the variant of the target in question, "" for the target itself."""
        return variant_of(self.work)

    def of_variant(self, name: str) -> TargetQuestion:
        """Return the same question about a variant of the target."""
        return TargetQuestion(self.target, variant_work(name, self.work))

    def key(self, key_of_target: str, lines: Sequence[int]) -> str:
        """Return the key of the answer, for the target's key and lines.

        Line numbers in the work are made relative to the target's lines, so that the target may move.
        """
        parts = {name: _placed(value, lines) for name, value in read_work(self.work).items()}
        return f"{key_of_target}?{write_work(parts)}" if parts else key_of_target


def _placed(value: str, lines: Sequence[int]) -> str:
    range_ = _LINES.fullmatch(value)
    return value if range_ is None else "-".join(str(bisect_left(lines, int(line))) for line in range_.groups())
