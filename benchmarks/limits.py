"""A limit for each process that a benchmark waits for: one that hangs ends the benchmark with a sentence."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


def output_of(command: Sequence[str], seconds: float) -> tuple[str, int]:
    """Return what a command prints, and its exit code. Raises SystemExit where it runs for longer than `seconds`."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"this did not end within {seconds:.0f} s: {' '.join(command)}") from None
    return done.stdout, done.returncode
