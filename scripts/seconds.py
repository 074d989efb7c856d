"""Print where the seconds of the tests went, by folder, editor and test; or run a command and note its seconds.

    python scripts/seconds.py                       the tables of what ran since the last time
    python scripts/seconds.py --of lint -- COMMAND

`make` lets the tests write to `.venv/.seconds`: a test, its phase, and the seconds in each row.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILE = Path(os.environ.get("FX_LSP_SECONDS") or Path(__file__).resolve().parent.parent / ".venv" / ".seconds")
SLOWEST = 30


class Row(NamedTuple):
    """Hold the seconds of one phase of a test, or of a command."""

    name: str
    phase: str
    seconds: float

    @property
    def file(self) -> str:
        """Return the file of a test, without `tests/`."""
        return self.name.partition("::")[0].removeprefix("tests/")

    @property
    def folder(self) -> str:
        """Return the first folder of a test."""
        return self.file.split("/")[0] if "/" in self.file else "(tests)"


def rows() -> list[Row]:
    """Return the rows of the file."""
    lines = FILE.read_text(encoding="utf-8").splitlines() if FILE.exists() else []
    return [Row(name, phase, float(seconds)) for name, phase, seconds in (line.split("\t") for line in lines)]


def tables(measured: list[Row]) -> Iterator[str]:
    """Yield the lines of the tables, in Markdown."""
    tests = [row for row in measured if row.phase != "command"]
    whole, started, each = (defaultdict[str, float](float) for _ in range(3))
    for row in tests:
        whole[row.folder] += row.seconds
        started[row.folder] += row.seconds if row.phase == "setup" else 0
        each[row.name] += row.seconds
    number = Counter(row.folder for row in tests if row.phase == "call")
    yield from ("| folder | seconds | of these, set-up | tests |", "|---|---|---|---|")
    for folder, seconds in longest_first(whole):
        yield f"| {folder} | {seconds:.0f} | {started[folder]:.0f} | {number[folder]} |"
    for row in measured:
        if row.phase == "command":
            yield f"| {row.name} | {row.seconds:.0f} | | |"
    yield from ("", "| start of | seconds |", "|---|---|")
    for row in tests:
        if row.file.startswith("e2e/") and row.phase == "setup" and row.seconds >= 1:
            yield f"| {row.name.removeprefix('tests/e2e/')} | {row.seconds:.0f} |"
    yield from ("", "| slowest test | seconds |", "|---|---|")
    yield from (f"| {name.removeprefix('tests/')} | {seconds:.1f} |" for name, seconds in longest_first(each)[:SLOWEST])


def longest_first(seconds: dict[str, float]) -> list[tuple[str, float]]:
    """Return the items, those with the most seconds first."""
    return sorted(seconds.items(), key=lambda item: -item[1])


def run(name: str, command: list[str]) -> int:
    """Run a command, add its seconds to the file, and return its exit status."""
    began = time.monotonic()
    status = subprocess.run(command).returncode
    with FILE.open("a", encoding="utf-8") as file:
        file.write(f"{name}\tcommand\t{time.monotonic() - began:.2f}\n")
    return status


if __name__ == "__main__":
    if sys.argv[1:2] == ["--of"]:
        sys.exit(run(sys.argv[2], sys.argv[4:]))
    print("\n".join(tables(rows())))
    FILE.unlink(missing_ok=True)
