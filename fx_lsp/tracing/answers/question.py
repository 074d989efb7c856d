"""Questions about a target, and the keys that their answers are kept under."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from fx_lsp.model import Work, read_work, variant_of, variant_work, write_work

_LINES = re.compile(r"(\d+)-(\d+)")
"""A part of work that is about some lines of the target's file."""


@dataclass(frozen=True)
class TargetQuestion:
    """Ask about a target of a file: its trace or, with `work`, what else is made of that."""

    target: str
    work: Work = ""

    def __str__(self) -> str:
        return f"{self.target} {self.work}".rstrip()

    @property
    def variant(self) -> str:
        """Return the variant of the target that is asked about, "" for the target as it is."""
        return variant_of(self.work)

    def of_variant(self, name: str) -> TargetQuestion:
        """Return the same question about a variant of the target."""
        return TargetQuestion(self.target, variant_work(name, self.work))

    def key(self, key_of_target: str, lines: Sequence[int]) -> str:
        """Return the key of the answer, where the target has a key, and these lines.

        Lines that the work is about are counted in those of the target, which may stand anywhere.
        """
        parts = {name: _placed(value, lines) for name, value in read_work(self.work).items()}
        return f"{key_of_target}?{write_work(parts)}" if parts else key_of_target


def _placed(value: str, lines: Sequence[int]) -> str:
    range_ = _LINES.fullmatch(value)
    return value if range_ is None else "-".join(str(bisect_left(lines, int(line))) for line in range_.groups())
