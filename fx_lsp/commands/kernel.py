"""`fx-lsp kernel TARGET`: a file of Triton kernels for a function or module.

A file that was generated before and edited since is merged with the newly generated kernels.

Exit codes: 0 generated; 1 not generated, with conflicts or, with `--check`, wrong; 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fx_lsp.choices import ALL_KERNELS, AUTO, REWRITES, TRITON, Choices, allowed, read_choices
from fx_lsp.commands.options import add_choices, add_tracing_options
from fx_lsp.commands.outputs import put, remove_output, report_unwritten, write_outputs
from fx_lsp.commands.targets import Chosen, failure_text, opened, read_target, source_line, stages_of
from fx_lsp.commands.tune import TUNE_SECONDS, kept, tune
from fx_lsp.features.documents.document import render_stage
from fx_lsp.features.documents.passes import render_passes
from fx_lsp.features.kernels import CHIP, LISTINGS, RESOURCES, render_listing, said_of_code, stages_of_listing, work_of
from fx_lsp.messages.requests import NO_SUCH_LISTING
from fx_lsp.model import Failure, Trace, read_work, write_work
from fx_lsp.tracing.kernel_files.checking import (
    MAX_CHECK_SECONDS,
    Checked,
    CheckPlace,
    check,
    compile_errors,
    with_failure,
)
from fx_lsp.tracing.kernel_files.generated import Generated, Refusal, generate, keep, read, record_of, update
from fx_lsp.tracing.kernel_files.tuned import TUNED
from fx_lsp.tracing.remote.hosts import LOCAL
from fx_lsp.tracing.source.project import project_root
from fx_lsp.tracing.workers.find_python import find_interpreter


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp kernel`."""
    parser.add_argument("target", metavar="TARGET", help="path/to/file.py::function, ::Class or ::Class.method")
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the file to write or update; your edits are kept (default: standard output)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument(
        "--tune",
        metavar="HOST",
        help=f"race candidates on a host, pool or Ray cluster of your hosts.toml ({LOCAL}: this machine), and keep the "
        f"fastest choices in {TUNED}, which later calls use",
    )
    parser.add_argument(
        "--seconds", type=float, default=TUNE_SECONDS, help=f"the time for --tune (default: {TUNE_SECONDS:.0f})"
    )
    parser.add_argument("--yes", action="store_true", help="use a new host without asking")
    either = parser.add_mutually_exclusive_group()
    either.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        help="compile the kernels for the chip, and compare them with the original: on a GPU, or in Triton's "
        "interpreter if there is none (default: if there is an output file)",
    )
    either.add_argument("--view", choices=(*LISTINGS, RESOURCES), help="print the compiled kernels instead")
    parser.add_argument("--gpu", default=CHIP, metavar="CHIP", help=f"the chip to compile for (default: {CHIP})")
    parser.add_argument(
        "--dump-passes",
        metavar="DIR",
        help="write the graphs after each rewrite that changes them to DIR, with a list of all rewrites",
    )
    add_choices(parser, allowed())
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Generate the kernels of the target. Raises TargetError for a target without a file."""
    chosen = read_target(arguments.target)
    if arguments.dump_passes is not None:
        try:
            failure = asyncio.run(_dump_passes(arguments, chosen))
        except OSError as error:
            return report_unwritten(error, str(arguments.dump_passes))
        if failure is not None:
            print(failure_text(failure, chosen), file=sys.stderr)
            return 1
    if arguments.tune is not None and (code := tune(arguments, chosen, chosen_of(arguments))):
        return code
    if arguments.check is None:
        arguments.check = arguments.output is not None and not arguments.view
    kernels = asyncio.run(_compiled(arguments, chosen) if arguments.view else _generated(arguments, chosen))
    if isinstance(kernels, CompiledKernels):
        kernels = _right_ones(arguments, chosen, kernels)
    if isinstance(kernels, Failure):
        refused = arguments.view and kernels.kind == "unsupported"
        print(failure_text(kernels, chosen, "compiled" if refused else "traced"), file=sys.stderr)
        return 1
    try:
        if isinstance(kernels, CompiledKernels) and arguments.output is not None:
            return _bring_up_to_date(arguments, chosen, kernels)
        text, code = (kernels, 0) if isinstance(kernels, str) else _told(kernels.generated.text, kernels.checked)
        if arguments.output is None:
            print(text, end="")
        else:
            write_outputs({Path(arguments.output): text}, arguments.force)
    except OSError as error:
        return report_unwritten(error, str(arguments.output))
    return code


def _right_ones(arguments: argparse.Namespace, chosen: Chosen, kernels: CompiledKernels) -> CompiledKernels | Failure:
    """Return kernels with their check, if it is requested: if it finds an error, those of Inductor in their place, if
    nobody chose otherwise and these are right.
    """
    kernels = _checked(arguments, chosen, kernels)
    choices = read_choices(read_work(kernels.generated.work))
    if not kernels.checked.wrong or choices.engine != "fx-lsp" or choices.inductor != AUTO:
        return kernels
    arguments.inductor = ALL_KERNELS
    others = asyncio.run(_generated(arguments, chosen))
    others = others if isinstance(others, Failure) else _checked(arguments, chosen, others)
    if isinstance(others, Failure) or others.checked.wrong:
        return kernels
    wrong = next(line for line in kernels.checked.output.splitlines() if line.startswith("wrong"))
    print(f"fx-lsp: Inductor replaces the kernels: {wrong.removeprefix('wrong').strip()}", file=sys.stderr)
    return others


def _bring_up_to_date(arguments: argparse.Namespace, chosen: Chosen, compiled: CompiledKernels) -> int:
    """Write a file of kernels, keeping its edits; return the exit code. Raises OSError."""
    output: str = arguments.output
    kernels = compiled.generated
    present = read(output)
    result = update(record_of(output), None if arguments.force else present, kernels)
    if isinstance(result, Refusal):
        way_out = "" if result.conflicts else ": --force overwrites it"
        print(f"fx-lsp: {output} {result.reason}{way_out}", file=sys.stderr)
        _list(output, result.conflicts)
        return 1 if result.conflicts else 2
    code = 0
    if result.conflicts:
        print("not checked: there are conflicts\n" * arguments.check, end="", file=sys.stderr)
    else:
        is_new = result.text == kernels.text
        checked = compiled.checked if is_new else _check(arguments, chosen, result.text, compiled.errors)
        text, code = _told(result.text, checked)
        result = replace(result, text=text)
    if result.text != present:
        put(Path(output), result.text)
    print(f"{output}: {result.said(present)}", file=sys.stderr)
    _list(output, result.conflicts)
    try:
        keep(output, kernels, present if result.text != present else None)
    except OSError as error:
        print(
            f"the generated state cannot be stored: {error}; the next update cannot merge your edits", file=sys.stderr
        )
    return 1 if result.conflicts else code


def _list(output: str, lines: Sequence[int]) -> None:
    for line in lines:
        print(f"  {output}:{line}", file=sys.stderr)


def _checked(arguments: argparse.Namespace, chosen: Chosen, kernels: CompiledKernels) -> CompiledKernels:
    """Return kernels with the result of their check."""
    return replace(kernels, checked=_check(arguments, chosen, kernels.generated.text, kernels.errors))


def _check(arguments: argparse.Namespace, chosen: Chosen, text: str, errors: Sequence[str]) -> Checked:
    """Return the result of the check of a file, if it is requested. `errors` are those of the compiler."""
    if not arguments.check:
        return UNCHECKED
    root = project_root(chosen.file)
    place = CheckPlace(find_interpreter(arguments.python, (root,), os.environ), (root,))
    return asyncio.run(check(text, chosen.text, errors, place))


def _told(text: str, checked: Checked) -> tuple[str, int]:
    """Print the result of a check; return the text of its file, with the errors at its top, and the exit code."""
    print(checked.output, end="", file=sys.stderr)
    is_checked = checked is not UNCHECKED and checked.done
    return (with_failure(text, checked), int(checked.wrong)) if is_checked else (text, 0)


def chosen_of(arguments: argparse.Namespace) -> Choices:
    """Return the choices of a command line."""
    return read_choices({name: getattr(arguments, name) for name in allowed()})


INDEX = "index.txt"
"""The file with the list of all rewrites."""


async def _dump_passes(arguments: argparse.Namespace, chosen: Chosen) -> Failure | None:
    """Write the graphs after each rewrite that changed them, and the list of all; files of an earlier call for rewrites
    that now change nothing are removed. Raises OSError.
    """
    work, folder = write_work({REWRITES: "", **chosen_of(arguments).parts()}), Path(arguments.dump_passes)
    async with opened(arguments, chosen) as engine:
        outcome = await engine.outcome(chosen.file, chosen.name, work)
        if isinstance(outcome, Failure):
            return outcome
        changed = [info.name for info in outcome.stages if info.change is None or info.change]
        stages = await stages_of(engine, chosen, changed, work)
    if isinstance(stages, Failure):
        return stages
    folder.mkdir(parents=True, exist_ok=True)
    texts, by_name = {chosen.file: chosen.text}, {stage.name: stage for stage in stages}
    graphs: dict[Path, str] = {}
    numbered = [f"{number:02}_{info.name}" for number, info in enumerate(outcome.stages)]
    for name, info in zip(numbered, outcome.stages, strict=True):
        if info.name in by_name:
            graph = render_stage(outcome, by_name[info.name], lambda span: source_line(span, texts), full=True)
            graphs[folder / f"{name}.py"] = graph.text
        else:
            remove_output(folder / f"{name}.py")
    infos = tuple(replace(info, name=name) for name, info in zip(numbered, outcome.stages, strict=True))
    index = render_passes(replace(outcome, stages=infos), True, REWRITES, "its graphs, rewrite by rewrite")
    write_outputs({**graphs, folder / INDEX: index.text}, arguments.force)
    return None


async def _compiled(arguments: argparse.Namespace, chosen: Chosen) -> str | Failure:
    """Return the compiled form of the kernels."""
    work = write_work({**read_work(work_of(arguments.view, arguments.gpu)), **chosen_of(arguments).parts()})
    async with opened(arguments, chosen) as engine:
        outcome = await engine.outcome(chosen.file, chosen.name, work)
        if isinstance(outcome, Failure):
            return outcome
        names = stages_of_listing(arguments.view, (info.name for info in outcome.stages))
        if not names:
            return NO_SUCH_LISTING.failure(gpu=arguments.gpu, view=arguments.view)
        for remark in outcome.remarks:
            if remark.severity == "error":  # a kernel that is not among them
                print(f"fx-lsp: {remark.message}", file=sys.stderr)
        stages = await stages_of(engine, chosen, names, work)
        return stages if isinstance(stages, Failure) else render_listing(stages, chosen.name).text


UNCHECKED = Checked("")
"""The result of no check."""


@dataclass(frozen=True)
class CompiledKernels:
    """Hold generated kernels, the compiler's errors in them, if they were compiled, and the result of their check."""

    generated: Generated
    errors: tuple[str, ...] = ()
    checked: Checked = UNCHECKED


async def _generated(arguments: argparse.Namespace, chosen: Chosen) -> CompiledKernels | Failure:
    choices = chosen_of(arguments)
    parts = choices.parts() or kept(chosen)
    work = write_work({TRITON: "", **parts})
    async with opened(arguments, chosen) as engine:
        outcome = await engine.outcome(chosen.file, chosen.name, work)
        if not isinstance(outcome, Trace):
            return outcome
        stages = await stages_of(engine, chosen, [TRITON], work)
        if isinstance(stages, Failure):
            return stages
        for line in said_of_code(stages[0], outcome.remarks, chosen.file, chosen.name):
            print(line, file=sys.stderr)
        kernels = await generate(engine, chosen.file, chosen.name, work)
        if isinstance(kernels, Failure) or not arguments.check:
            return kernels if isinstance(kernels, Failure) else CompiledKernels(kernels)
        errors = await compile_errors(engine, kernels, work_of(RESOURCES, arguments.gpu, work))
        if errors is None:
            print(f"not compiled: the compiler takes more than {MAX_CHECK_SECONDS:.0f} s", file=sys.stderr)
        return CompiledKernels(kernels, errors or ())
