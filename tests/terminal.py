"""Run commands of fx-lsp in a folder, with tracers that have torch already."""

from __future__ import annotations

import atexit
import functools
import io
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from warm import warm_python

from fx_lsp.cli import main


class Done(NamedTuple):
    """What a command has returned and printed."""

    returncode: int
    stdout: str
    stderr: str


def fx_lsp(folder: Path, *arguments: str) -> Done:
    """Run a command that traces, in this process. What it has traced before is not traced again.

    A trace has more time than by default: on a busy machine, that does not mean that it does not end.
    """
    out, errors, here = io.StringIO(), io.StringIO(), Path.cwd()
    environment = {"XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or _cache()}
    os.chdir(folder)
    try:
        with mock.patch.dict(os.environ, environment), redirect_stdout(out), redirect_stderr(errors):
            code = main([*arguments, *_added(arguments)])
    except SystemExit as ended:  # the parser of arguments has ended the command
        code = ended.code
    finally:
        os.chdir(here)
    assert isinstance(code, int)
    return Done(code, out.getvalue(), errors.getvalue())


def git(folder: Path, *arguments: str) -> None:
    """Run a command of git in a repository."""
    identity = {f"GIT_{role}_{part}": "a@b.c" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, env={**os.environ, **identity})


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a command that traces in a process of its own, which an interrupt reaches."""
    return subprocess.Popen(
        [sys.executable, "-m", "fx_lsp", *arguments, "--python", warm_python(), "--no-cache"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        preexec_fn=interruptible,
    )


def interruptible() -> None:
    """Let an interrupt end the program, also where the tests run in the background of a shell; for `preexec_fn`."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _added(arguments: Sequence[str]) -> Iterator[str]:
    if "--python" not in arguments:
        yield from ("--python", warm_python())
    if "--limit-seconds" not in arguments and arguments[0] != "doctor":
        yield from ("--limit-seconds", "600")


@functools.cache
def _cache() -> str:
    """Return a folder for what commands keep, which goes with the tests."""
    folder = tempfile.TemporaryDirectory(prefix="fx-lsp-cache-")
    atexit.register(folder.cleanup)
    return folder.name
