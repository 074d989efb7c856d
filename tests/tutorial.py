"""What the pages of the tutorial show: commands, the lines that they print, and code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def page(name: str) -> str:
    """Return the text of a page of the tutorial."""
    return (ROOT / "docs" / "tutorial" / f"{name}.md").read_text(encoding="utf-8")


def printed_by(name: str, command: str) -> list[str]:
    """Return the lines that a page shows below a command of fx-lsp."""
    return next(lines for other, lines in sessions(page(name)) if other == f"fx-lsp {command}")


def code(name: str, number: int) -> list[str]:
    """Return the lines of a block of Python on a page, the first of which has number 0."""
    blocks = re.findall(r"^```python[^\n]*\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)
    return blocks[number].splitlines()


def sessions(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command in the blocks of a page that show a terminal, with the lines shown below it."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            yield command, lines


def missing(shown: list[str], lines: list[str]) -> list[str]:
    """Return the shown lines that are not among those printed, in their order; `…` represents any lines."""
    rest = iter([comparable(line) for line in lines])
    return [line for line in shown if line.strip() not in ("", "…") and comparable(line) not in rest]


def comparable(line: str) -> str:
    """Return a line without what differs between machines: times, rounding errors, the version of torch, alignment."""
    line = re.sub(r"\b\d+\.\d+ s\b", "0 s", re.sub(r"\b\d\.\de-\d+", "0", re.sub(r"\btorch \d\S+", "torch", line)))
    return " ".join(line.split())
