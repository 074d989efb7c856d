"""Run `fx-lsp check` in a folder, with tracers that have torch already."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from interrupts import interruptible
from warm import warm_python


def check(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The finished check."""
    return subprocess.run(
        _command(arguments), cwd=folder, capture_output=True, text=True, encoding="utf-8", timeout=300
    )


def start_check(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """A check that runs; an interrupt reaches it."""
    pipe = subprocess.PIPE
    return subprocess.Popen(
        _command(arguments),
        cwd=folder,
        stdout=pipe,
        stderr=pipe,
        text=True,
        encoding="utf-8",
        preexec_fn=interruptible,
    )


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "fx_lsp", "check", *arguments, "--python", warm_python(), "--no-cache"]
