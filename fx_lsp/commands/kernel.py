"""`fx-lsp kernel TARGET`: a file of Triton kernels for a function or module.

Exit codes: 0 generated, 1 not generated or, with `--check`, wrong; 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import fx_lsp
from fx_lsp.choices import Choices, allowed, explained, read_choices
from fx_lsp.commands.options import add_tracing_options
from fx_lsp.commands.sources import project_root
from fx_lsp.commands.targets import Chosen, failure_text, opened, read_target, stages_of
from fx_lsp.features.kernels import CHIP, LISTINGS, RESOURCES, render_listing, stages_of_listing, work_of
from fx_lsp.features.lenses import TRITON
from fx_lsp.model import Failure, Trace
from fx_lsp.tracing.interpreters import find_interpreter

LONGEST_CHECK = 120.0
"""Seconds that a comparison may take; Triton's interpreter needs minutes for large tensors."""

INTERPRETER = Path(fx_lsp.__file__).parent / "bench" / "interpreter.py"
"""What Triton's interpreter needs to be right; it runs in the user's interpreter, where there is no fx-lsp."""

MOST_LINES = 20
"""How much of a failed comparison stands at the top of the file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `fx-lsp kernel`."""
    parser.add_argument("target", metavar="TARGET", help="path/to/file.py::function, ::Class or ::Class.method")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write it (default: standard output)")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare the kernels with the original: on a GPU, or without one in Triton's interpreter",
    )
    parser.add_argument("--view", choices=(*LISTINGS, RESOURCES), help="print what the kernels are compiled to instead")
    parser.add_argument("--gpu", default=CHIP, metavar="CHIP", help=f"the chip to compile for (default: {CHIP})")
    sentences = explained()
    for name, values in allowed().items():
        what = f"{sentences[name]} (default: {values[0]})"
        parser.add_argument(f"--{name}", choices=values, default=values[0], help=what)
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Generate the kernels of the target. Raises TargetError for a target that names no file."""
    chosen = read_target(arguments.target)
    text = asyncio.run(_compiled(arguments, chosen) if arguments.view else _generated(arguments, chosen))
    if isinstance(text, Failure):
        print(failure_text(text, chosen), file=sys.stderr)
        return 1
    code = 0
    if arguments.check and not arguments.view:
        root = project_root(chosen.file)
        checked = compared(text, find_interpreter(arguments.python, (root,), os.environ), root)
        text, code = with_failure(text, checked), int(checked.wrong)
        print(checked.output, end="", file=sys.stderr)
    if arguments.output is None:
        print(text, end="")
        return code
    try:
        Path(arguments.output).write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"fx-lsp: {arguments.output} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    return code


def chosen_of(arguments: argparse.Namespace) -> Choices:
    """The choices of a command line."""
    return read_choices({name: getattr(arguments, name) for name in allowed()})


async def _compiled(arguments: argparse.Namespace, chosen: Chosen) -> str | Failure:
    """What the kernels are compiled to."""
    work = chosen_of(arguments).work(work_of(arguments.view, arguments.gpu))
    async with opened(arguments, chosen) as engine:
        outcome = await engine.outcome(chosen.file, chosen.name, work)
        if isinstance(outcome, Failure):
            return outcome
        names = stages_of_listing(arguments.view, (info.name for info in outcome.stages))
        if not names:
            return Failure("unsupported", f"kernels for {arguments.gpu} have no {arguments.view}")
        found = await stages_of(engine, chosen, names, work)
        return found if isinstance(found, Failure) else render_listing(found, chosen.name).text


async def _generated(arguments: argparse.Namespace, chosen: Chosen) -> str | Failure:
    work = chosen_of(arguments).work(TRITON)
    async with opened(arguments, chosen) as engine:
        outcome = await engine.outcome(chosen.file, chosen.name, work)
        if not isinstance(outcome, Trace):
            return outcome
        found = await stages_of(engine, chosen, [TRITON], work)
        return found if isinstance(found, Failure) else found[0].text


@dataclass(frozen=True)
class Checked:
    """What a file's own comparison said, and whether it found something wrong."""

    output: str
    wrong: bool = False


_RUN = """\
import runpy, sys
import torch
if not torch.cuda.is_available():
    runpy.run_path(sys.argv[2])["repair"]()
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def compared(text: str, python: str, root: str, seconds: float = LONGEST_CHECK) -> Checked:
    """Run a generated file in the interpreter `python`, where modules of the project at `root` can be imported."""
    if subprocess.run([python, "-c", "import triton"], capture_output=True, check=False).returncode:
        return Checked(f"not checked: {python} has no triton: install it there, or choose another with --python\n")
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernels.py"
        file.write_text(text, encoding="utf-8")
        command = [python, "-c", _RUN, str(file), str(INTERPRETER)]
        try:
            done = subprocess.run(
                command, cwd=root, env=environment, capture_output=True, text=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            return Checked(f"not checked: the comparison takes more than {seconds:.0f} s\n")
    output = done.stdout + (done.stderr.replace(folder, "") if done.returncode else "")
    return Checked(output, done.returncode != 0)


def with_failure(text: str, checked: Checked) -> str:
    """A file with what its comparison found wrong at its top."""
    if not checked.wrong:
        return text
    lines = [line for line in checked.output.splitlines() if line.strip() and not line.startswith(("right", "not "))]
    shown = "".join(f"#     {line}".rstrip() + "\n" for line in lines[-MOST_LINES:])
    return f"# These kernels do not compute what the original does:\n#\n{shown}\n{text}"
