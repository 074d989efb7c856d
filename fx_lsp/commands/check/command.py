"""`fx-lsp check [PATH…]`: traces every function and module that it finds, and reports the result of each.

Exit codes: 0 clean, 1 problems (code that is wrong, files that do not parse; code that cannot be traced for another
reason is not a problem, nor is what the baseline accepts), 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fx_lsp.commands.check.baseline import Baseline, new_baseline, read_baseline
from fx_lsp.commands.check.changes import WatchedFiles, affected_by, changed_since, wait_for_change
from fx_lsp.commands.check.costs import CostComparison, compare_costs
from fx_lsp.commands.check.reporting import FORMATS, CheckReporter, ReportOptions
from fx_lsp.commands.check.survey import SurveyScope, survey
from fx_lsp.commands.options import add_tracing_options, engine_settings, from_here
from fx_lsp.commands.sources import Source, find_sources
from fx_lsp.errors import UsageError, WorkerStartError
from fx_lsp.features.source.findings import FINDINGS, TOLD
from fx_lsp.features.wording.text import count
from fx_lsp.model import FindingCode, TargetKind
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.source.project import read_project
from fx_lsp.tracing.workers.capacity import parallel_traces
from fx_lsp.tracing.workers.find_python import Interpreter, find_interpreter, probe

KINDS: dict[str, TargetKind] = {
    "functions": "function",
    "modules": "module",
    "methods": "method",
    "graphs": "graph",
    "steps": "step",
    "scripts": "script",
}

COST_FORMATS = ("text", "json", "github")
"""The formats of a comparison of costs."""
_CLEAR = "\x1b[2J\x1b[3J\x1b[H"
"""Clears a terminal and what it has scrolled away."""

SEVERITIES = """\
severities:
  problem (error)  the code fails for all inputs, or for the inputs that the program passes
  warning          the code works only by accident, or fails for all inputs that were tried
  information      worth a look, may be correct: a graph break, a value that the trace does not know

A mistake that several targets reach is listed and counted once; the others show `as NAME`.

exit codes, in every format:
  0    no problems, or none that the baseline does not accept; also after --write-baseline
  1    problems
  2    wrong usage, a file of an option that cannot be used, or no interpreter with torch
  130  interrupted; the results so far are printed
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp check`."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, SEVERITIES
    parser.add_argument(
        "paths",
        nargs="*",
        default=["."],
        metavar="PATH",
        help="a file, a notebook, a directory, or path/to/file.py::name (default: the working directory)",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", *FORMATS),
        default="text",
        help="what to print: text for people, one JSON document, SARIF 2.1.0, commands of GitHub Actions, a report of "
        "GitLab's Code Quality, or one of JUnit (default: text)",
    )
    parser.add_argument("--json", action="store_const", dest="format", const="json", help="the same as --format json")
    parser.add_argument("--only", choices=tuple(KINDS), help="show only targets of this kind")
    for option, told in (("--enable", "report"), ("--disable", "do not report")):
        codes = f"one of {', '.join(FINDINGS)}, or all"
        parser.add_argument(
            option, action="append", default=[], choices=(*FINDINGS, "all"), metavar="CODE", help=f"{told} of: {codes}"
        )
    parser.add_argument(
        "--since",
        metavar="REV",
        help="check only files that differ from this git revision or are not tracked, and files that import such files",
    )
    parser.add_argument(
        "--costs",
        action="store_true",
        help="with --since: print what each target costs before and after the change, if that differs: text, JSON, or "
        "(--format github) a table of Markdown; mistakes are on standard error",
    )
    parser.add_argument(
        "--compare-python",
        type=from_here,
        metavar="PATH",
        help="print what each target costs with the PyTorch of this other interpreter (before) and of the one of the "
        "check (after), if that differs; the formats are those of --costs",
    )
    parser.add_argument(
        "--statistics", action="store_true", help="print the number of mistakes of each code at the end"
    )
    parser.add_argument(
        "--watch", action="store_true", help="check again whenever a file that matters changes, until Ctrl-C"
    )
    baselines = parser.add_mutually_exclusive_group()
    baselines.add_argument(
        "--baseline", metavar="FILE", help="report only the mistakes that are not in this file; others are accepted"
    )
    baselines.add_argument(
        "--write-baseline", metavar="FILE", help="write all mistakes to this file, for --baseline, and exit with 0"
    )
    add_tracing_options(parser)
    parser.add_argument(
        "--jobs", type=_positive, metavar="N", help="traces at once (default: as many as cores and memory allow)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check the requested files and print the results. Raises UsageError and WorkerStartError for wrong usage."""
    started = time.perf_counter()
    if arguments.watch and (arguments.format != "text" or arguments.write_baseline is not None):
        raise UsageError("--watch prints text and writes no baseline: it excludes --format and --write-baseline")
    is_unfit, formats = arguments.watch or arguments.format not in COST_FORMATS, ", ".join(COST_FORMATS)
    if arguments.costs and (arguments.since is None or is_unfit):
        raise UsageError(f"--costs needs --since, excludes --watch, and its formats are {formats}")
    if arguments.compare_python and (arguments.costs or is_unfit):
        raise UsageError(f"--compare-python excludes --costs and --watch, and its formats are {formats}")
    if sys.stderr.isatty():
        print("\r\x1b[Kfinding what to check", end="\r", file=sys.stderr, flush=True)
    sources = find_sources(arguments.paths)
    scope, baseline = _scope(arguments, sources), _baseline(arguments)
    python, interpreter = _with_torch(arguments.python, tuple(dict.fromkeys(source.root for source in sources)))
    if arguments.compare_python:
        _with_torch(arguments.compare_python, ())
    checks = _Checks(arguments, interpreter, python)
    try:
        return asyncio.run(checks.run(scope, baseline, started))
    except KeyboardInterrupt:
        return checks.interrupted()


class _Checks:
    """Run one check, or with `--watch` another one after each change."""

    def __init__(self, arguments: argparse.Namespace, interpreter: Interpreter, python: str) -> None:
        self._arguments, self._interpreter = arguments, interpreter
        settings = engine_settings(arguments)
        workers = arguments.jobs or parallel_traces(settings.limits.memory_bytes)
        self._settings = replace(settings, interpreter=python, workers=workers)
        self._watched = WatchedFiles()
        self._running: CheckReporter | None = None

    async def run(self, scope: SurveyScope, baseline: Baseline | None, started: float) -> int:
        """Check a scope, and return the exit code; with `--watch`, check again until an interrupt."""
        arguments = self._arguments
        engine = Engine(self._settings, lambda file: None, lambda status: None)
        try:
            code = await self._check(engine, scope, baseline, started)
            while arguments.watch:
                print("watching for changes; Ctrl-C ends", file=sys.stderr, flush=True)
                await wait_for_change(self._watched, self._present)
                started = time.perf_counter()
                if sys.stdout.isatty():
                    print(_CLEAR, end="", flush=True)
                try:
                    scope, baseline = _scope(arguments, find_sources(arguments.paths)), _baseline(arguments)
                except UsageError as error:
                    print(f"fx-lsp: {error}", file=sys.stderr)
                    self._watched.begin(self._present(), _files_of_options(arguments))
                else:
                    code = await self._check(engine, scope, baseline, started)
            return code
        finally:
            await engine.shutdown()

    def interrupted(self) -> int:
        """Print the results so far of a check that runs, and return the exit code."""
        return 130 if self._running is None else self._running.end(interrupted=True)

    async def _check(self, engine: Engine, scope: SurveyScope, baseline: Baseline | None, started: float) -> int:
        arguments = self._arguments
        self._watched.begin(self._present(), _files_of_options(arguments))
        writes, is_complete = arguments.write_baseline is not None, arguments.only is None
        options = ReportOptions(
            arguments.format,
            self._interpreter,
            baseline,
            writes,
            is_complete,
            has_costs=_has_costs(arguments),
            has_statistics=arguments.statistics,
        )
        scope = replace(scope, jobs=self._settings.workers)
        self._running = reporter = CheckReporter(options, scope, started)
        shown = asyncio.create_task(reporter.progress.keep_showing())
        try:
            await survey(engine, scope, reporter.hear, reporter.progress)
            costs = await self._costs(engine, scope, reporter)
        finally:
            shown.cancel()
        code = reporter.end(costs=costs)
        self._watched.add(reporter.dependencies)
        self._running = None
        return code

    async def _costs(self, engine: Engine, scope: SurveyScope, reporter: CheckReporter) -> CostComparison | None:
        """Return the comparison of costs that is asked for."""
        arguments = self._arguments
        if arguments.costs:
            return await compare_costs(engine, scope, reporter.reports, arguments.since, reporter.progress)
        if arguments.compare_python is None:
            return None
        settings = replace(self._settings, interpreter=arguments.compare_python)
        other = Engine(settings, lambda file: None, lambda status: None)
        try:
            return await compare_costs(other, scope, reporter.reports, None, reporter.progress)
        finally:
            await other.shutdown()

    def _present(self) -> list[Source]:
        """Return the files to watch: all that may be checked, and none if a path is missing or not valid."""
        try:
            return find_sources(self._arguments.paths) if self._arguments.watch else []
        except UsageError:
            return []


def _scope(arguments: argparse.Namespace, sources: Sequence[Source]) -> SurveyScope:
    """Return the targets to check in these files. Raises UsageError."""
    wrong = (sentence for source in sources for sentence in read_project(source.file).wrong)
    if (first := next(wrong, None)) is not None:
        raise UsageError(first)
    kinds: list[TargetKind] = [kind for name, kind in KINDS.items() if arguments.only in (None, name)]
    if arguments.since is not None:
        folders = (str(Path(source.file).parent) for source in sources)
        affected = affected_by(changed_since(arguments.since, folders), sources)
        number = f"{len(affected):,} of {count('file', len(sources))}"
        print(f"{number} changed since {arguments.since}, or import what did", file=sys.stderr, flush=True)
        sources = affected
    return SurveyScope(sources, kinds, _codes(arguments), has_costs=_has_costs(arguments))


def _has_costs(arguments: argparse.Namespace) -> bool:
    return arguments.costs or arguments.compare_python is not None


def _baseline(arguments: argparse.Namespace) -> Baseline | None:
    """Return the baseline to apply or to write. Raises UsageError."""
    if arguments.write_baseline is not None:
        return new_baseline(arguments.write_baseline)
    return None if arguments.baseline is None else read_baseline(arguments.baseline)


def _files_of_options(arguments: argparse.Namespace) -> list[str]:
    return [] if arguments.baseline is None else [str(Path(arguments.baseline).resolve())]


def _codes(arguments: argparse.Namespace) -> frozenset[FindingCode]:
    """Return the findings to report."""
    enabled: set[FindingCode] = set(FINDINGS if "all" in arguments.enable else arguments.enable)
    return frozenset(enabled if "all" in arguments.disable else (TOLD | enabled) - set(arguments.disable))


def _with_torch(path: str | None, roots: tuple[str, ...]) -> tuple[str, Interpreter]:
    """Return the interpreter for these roots and what is known of it. Raises WorkerStartError if it has no torch."""
    python = find_interpreter(path, roots, os.environ)
    interpreter = asyncio.run(probe(python))
    if interpreter.torch is None:
        raise WorkerStartError(f"{python} has no torch", "no-torch", "")
    return python, interpreter


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)
