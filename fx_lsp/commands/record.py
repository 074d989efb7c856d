"""`fx-lsp record -- COMMAND…`: runs a command and records the arguments of the project's functions.

Every Python that the command starts is recorded. The exit code is the command's, 128 and the signal's number if a
signal ended it, 127 or 126 if it could not be started; 2 without a command.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import fx_lsp
from fx_lsp.errors import TargetError
from fx_lsp.features.wording.text import count, one_line
from fx_lsp.tracing.calls.recordings import RecordedCall, new_run, read_calls, run_files, settle, store_of
from fx_lsp.tracing.source.project import project_root

SETTINGS = "FX_LSP_RECORD"
"""The environment variable with the recorder's settings for a Python."""
_MAX_LINES = 40
_COMMAND_WIDTH = 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp record`."""
    parser.usage = "fx-lsp record [-h] -- COMMAND…"
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="COMMAND", help="python train.py, pytest, …")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and print a summary of the recording. Raises TargetError without a command."""
    command: list[str] = arguments.program
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        raise TargetError("pass the command to run: fx-lsp record -- python train.py")
    root = project_root(str(Path.cwd() / "program.py"))
    store, started = store_of(root), new_run()
    try:
        store.mkdir(0o700, parents=True, exist_ok=True)
    except OSError as error:
        print(f"fx-lsp record: nothing can be stored: {error}", file=sys.stderr)
    said = one_line(shlex.join([Path(command[0]).name, *command[1:]]), _COMMAND_WIDTH)
    try:
        code = _run(command, _environment({"root": root, "store": str(store), "run": started, "command": said}))
    except OSError as error:
        print(f"fx-lsp: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    files = run_files(store, started)
    print(_summary(read_calls(files), len(files), root), end="", file=sys.stderr)
    try:
        settle(store, started, root)
    except OSError as error:
        print(f"fx-lsp record: {store} could not be cleaned up: {error}", file=sys.stderr)
    return code if code >= 0 else 128 - code


def _environment(settings: dict[str, str]) -> dict[str, str]:
    site = str(Path(fx_lsp.__file__).parent / "tracer" / "record" / "site")
    paths = [site, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), SETTINGS: json.dumps(settings)}


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Return the return code, negative for a signal. Raises OSError if the command cannot be started."""
    started: list[subprocess.Popen[bytes]] = []
    with _signals_passed_on(started):
        started.append(subprocess.Popen(command, env=environment))
        return started[0].wait()


@contextmanager
def _signals_passed_on(started: Sequence[subprocess.Popen[bytes]]) -> Generator[None, None, None]:
    """Forward signals that end a program to the command; this process continues to print the summary."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        if started and not (number == signal.SIGINT and _terminal_signals_all()):
            started[0].send_signal(number)

    names = [n for n in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT") if hasattr(signal, n)]
    before = {n: signal.signal(getattr(signal, n), pass_on) for n in names}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)


def _terminal_signals_all() -> bool:
    """Return True if Ctrl-C in the terminal reaches the command directly."""
    if os.name == "nt":
        return True
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False


def _summary(calls: Sequence[RecordedCall], processes: int, root: str) -> str:
    """Return a table of the recorded calls: a line for each call, under its file."""
    if not calls:
        why = (
            f"no function under {root} was called with tensors"
            if processes
            else "no Python process of the command imported torch"
        )
        return f"fx-lsp recorded nothing: {why}\n"
    targets = dict.fromkeys((call.file, call.name) for call in calls)
    files = dict.fromkeys(call.file for call in calls)
    title = f"fx-lsp recorded {count('call', len(calls))} of {count('function', len(targets))}"
    lines: list[str] = []
    width = min(max(len(name) for _, name in targets), 32)
    columns = max(shutil.get_terminal_size((120, 24)).columns - 5, 72)
    for file in files:
        lines.append(file)
        for target in targets:
            if target[0] == file:
                texts = dict.fromkeys(call.text for call in calls if (call.file, call.name) == target)
                names = [target[1], *[""] * (len(texts) - 1)]
                lines += [f"  {n:{width}}  {one_line(t, columns - width)}" for n, t in zip(names, texts, strict=True)]
    if len(lines) > _MAX_LINES:
        lines = [*lines[: _MAX_LINES - 1], f"… {len(lines) - _MAX_LINES + 1} more lines"]
    return "\n".join([f"{title} in {count('file', len(files))}", *lines, ""])
