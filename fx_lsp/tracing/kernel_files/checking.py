"""Check a file of kernels: parse it, compile its kernels for the GPU, and compare them with the original.

The command line and the server both do it here. The comparison is a process of the user's interpreter, because it
imports torch.
"""

from __future__ import annotations

import ast
import asyncio
import os
import re
import tempfile
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import fx_lsp
from fx_lsp import files
from fx_lsp.choices import read_choices
from fx_lsp.errors import WorkerStartError
from fx_lsp.model import Failure, Trace, Work, read_work
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.kernel_files.generated import WRONG, Generated, generate, without_failure
from fx_lsp.tracing.workers.channels import OutputTail
from fx_lsp.tracing.workers.launch import Limits, worker_environment
from fx_lsp.tracing.workers.processes import describe_status, start_process

MAX_CHECK_SECONDS = 120.0
"""The time limit of a comparison in seconds; Triton's interpreter needs minutes for large tensors."""

PACKAGE = str(Path(fx_lsp.__file__).parent)
"""The folder of this package."""

OLDEST_PYTHON = (3, 10)
"""The oldest Python that generated files run in."""

MAX_MESSAGE = 120
"""The most characters of a compiler's error."""

MAX_LINES = 20
"""The most lines of a failed comparison at the top of the file."""


@dataclass(frozen=True)
class Checked:
    """Hold the output of a file's check, and whether it found an error."""

    output: str
    wrong: bool = False

    @property
    def done(self) -> bool:
        """Return True if anything was checked."""
        return not self.output.startswith("not checked")


@dataclass(frozen=True)
class CheckPlace:
    """Hold where a file is compared: the interpreter, the folders of the project that it imports from, and the limits.

    Without limits, it runs with the user's rights, and on the GPU if there is one.
    """

    python: str
    roots: tuple[str, ...]
    limits: Limits | None = None
    seconds: float = MAX_CHECK_SECONDS


async def compile_errors(engine: Engine, kernels: Generated, compiled: Work) -> tuple[str, ...] | None:
    """Return the compiler's errors in generated kernels; None if it takes too long. `compiled` is the work of
    compiling them.

    There are none for kernels that are not from fx-lsp, and if the function has changed since.
    """
    if read_choices(read_work(kernels.work)).engine != "fx-lsp":
        return ()
    now = await generate(engine, kernels.source, kernels.name, kernels.work)
    if isinstance(now, Failure) or now.digest != kernels.digest:
        return ()
    try:
        answer = engine.outcome(kernels.source, kernels.name, compiled)
        outcome = await asyncio.wait_for(answer, MAX_CHECK_SECONDS)
    except asyncio.TimeoutError:
        return None
    remarks = outcome.remarks if isinstance(outcome, Trace) else ()
    said = (remark.message for remark in remarks if remark.severity == "error")
    return tuple(textwrap.shorten(message, MAX_MESSAGE, placeholder=" …") for message in said)


async def check(text: str, source: str, errors: Sequence[str], place: CheckPlace) -> Checked:
    """Check the text of a file of kernels for a function in a file with the text `source`; `errors` are the compiler's.

    Cancelling it ends the process of the comparison.
    """
    _, kernels = without_failure(text.replace("\r\n", "\n"))
    errors = [*(syntax_errors(kernels) if not syntax_errors(source) else ()), *errors]
    if errors:
        return Checked("".join(f"wrong  {error}\n" for error in errors), wrong=True)
    return await compared(kernels, place)


def syntax_errors(text: str) -> list[str]:
    """Return why a file is not valid in the oldest Python that fx-lsp supports, in a list that is empty if it is."""
    try:
        ast.parse(text, feature_version=OLDEST_PYTHON)
    except SyntaxError as error:
        version = ".".join(map(str, OLDEST_PYTHON))
        return [f"line {error.lineno} is not valid in Python {version}: {error.msg}"]
    return []


_RUN = """\
import os, sys, types
package = types.ModuleType("fx_lsp")
package.__path__ = [sys.argv.pop(1)]
sys.modules["fx_lsp"] = package
os.chdir(sys.argv.pop(1))
from fx_lsp.bench.variant.check import main
sys.exit(main())
"""
"""Compares a file in an interpreter that may not have fx-lsp; none of our other packages is visible to it."""


async def compared(text: str, place: CheckPlace) -> Checked:
    """Compare a generated file with the original in a process of its own."""
    paths = [*place.roots, *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ) if place.limits is None else worker_environment(os.environ, folder)
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        file = Path(folder) / "kernels.py"
        files.write(file, text.encode("utf-8", "surrogateescape"))
        command = [place.python, "-c", _RUN, PACKAGE, place.roots[0], str(file), *_limits(place, folder)]
        try:
            status, output, errors = await _run(command, environment, place.seconds)
        except asyncio.TimeoutError:
            return Checked(f"not checked: the comparison takes more than {place.seconds:.0f} s\n")
        except WorkerStartError as error:
            return Checked(f"not checked: {error}\n")
    missing = re.search(r"^ModuleNotFoundError: No module named '([^']+)'\s*\Z", errors, re.MULTILINE)
    if status and missing is not None:
        return Checked(f"not checked: {place.python} has no {missing[1]}, which the comparison needs: install it\n")
    denied = re.search(r"^PermissionError: .*", errors, re.MULTILINE)
    if status and denied is not None and place.limits is not None:
        return Checked(f"not checked: it may not do this in the background: {denied[0].replace(folder, '')}\n")
    if status < 0:
        return Checked(f"not checked: the comparison {describe_status(status)}\n")
    return Checked(output + (errors.replace(folder, "") if status else ""), status != 0)


def _limits(place: CheckPlace, folder: str) -> list[str]:
    """Return the options of a comparison with limits."""
    if place.limits is None:
        return []
    options = [f"--memory={place.limits.memory_bytes}"]
    if place.limits.confined:
        options += [f"--scratch={folder}", *(f"--root={root}" for root in place.roots)]
        options += [f"--allow-read={path}" for path in place.limits.reads]
        options += [f"--allow-program={name}" for name in place.limits.programs]
    return options


async def _run(command: Sequence[str], environment: dict[str, str], seconds: float) -> tuple[int, str, str]:
    """Run a command, and return its exit code and what it printed. Ends it after `seconds`, or when it is cancelled.

    Raises asyncio.TimeoutError, and WorkerStartError.
    """
    process = await start_process(command, environment)
    assert process.stderr is not None
    output, errors = OutputTail(process.stdout), OutputTail(process.stderr)
    try:
        status = await asyncio.wait_for(asyncio.shield(process.exited), seconds)
        await output.ended(1)
        await errors.ended(1)
    finally:
        output.stop()
        errors.stop()
        await process.end()
    return status, output.text(), errors.text()


def with_failure(text: str, checked: Checked) -> str:
    """Return a file, whose text may have the errors of an earlier check, with those of this one at its top."""
    newline = "\r\n" if "\r\n" in text else "\n"
    _, kernels = without_failure(text.replace("\r\n", "\n"))
    return (failure_comments(checked) + kernels).replace("\n", newline)


def failure_comments(checked: Checked) -> str:
    """Return the errors of a check as comments for the top of its file; "" without errors."""
    if not checked.wrong:
        return ""
    lines = [line for line in checked.output.splitlines() if line.strip() and not line.startswith(("right", "not "))]
    shown = "".join(f"#     {line}".rstrip() + "\n" for line in lines[-MAX_LINES:])
    return f"{WRONG}#\n{shown}\n"
