"""`fx-lsp check PATH…`: traces every function and module that it finds, and reports the result of each.

Exit codes: 0 clean, 1 problems (code that is wrong, files that do not parse; code that cannot be traced for another
reason is not a problem), 2 usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fx_lsp import __version__, wire
from fx_lsp.commands.annotations import to_github, to_gitlab, to_junit
from fx_lsp.commands.columns import in_characters
from fx_lsp.commands.listing import CheckListing, Progress, list_summary, one_line_summary
from fx_lsp.commands.options import add_tracing_options, cache_path, limits_of
from fx_lsp.commands.results import CheckResult, results_of
from fx_lsp.commands.sarif import to_sarif
from fx_lsp.commands.sources import Source, find_sources
from fx_lsp.commands.survey import FileReport, SurveyScope, summarize, survey, to_json
from fx_lsp.errors import WorkerStartError
from fx_lsp.features.findings import FINDINGS, TOLD
from fx_lsp.model import FindingCode, TargetKind
from fx_lsp.tracing.engine import Engine, EngineSettings
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


FORMATS: dict[str, Callable[[Sequence[FileReport], Sequence[CheckResult], Path], str]] = {
    "sarif": lambda _, results, base: json.dumps(to_sarif(results, base), indent=1),
    "github": lambda _, results, base: to_github(results, base),
    "gitlab": lambda _, results, base: json.dumps(to_gitlab(results, base), indent=1),
    "junit": to_junit,
}
"""The formats of code hosts and CI services."""

SEVERITIES = """\
severities:
  problem (error)  the code fails for all inputs, or for the inputs that the program passes
  warning          the code works only by accident, or fails for all inputs that were tried
  information      worth a look, may be correct: a graph break, a value that the trace does not know

A mistake that several targets reach is listed and counted once; the others show `as NAME`.
The exit code is 0 without problems, 1 with some, 2 for wrong usage, 130 when interrupted.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp check`."""
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, SEVERITIES
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a file, a notebook, a directory, or path/to/file.py::name"
    )
    parser.add_argument(
        "--format",
        choices=("text", "json", *FORMATS),
        default="text",
        help="what to print: text for people, one JSON document, SARIF 2.1.0, commands of GitHub Actions, a report of "
        "GitLab's Code Quality, or one of JUnit (default: text)",
    )
    parser.add_argument("--only", choices=tuple(KINDS), help="show only targets of this kind")
    for option, told in (("--enable", "report"), ("--disable", "do not report")):
        codes = f"one of {', '.join(FINDINGS)}, or all"
        parser.add_argument(
            option, action="append", default=[], choices=(*FINDINGS, "all"), metavar="CODE", help=f"{told} of: {codes}"
        )
    add_tracing_options(parser)
    parser.add_argument(
        "--jobs", type=_positive, metavar="N", help="traces at once (default: as many as cores and memory allow)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check the requested files and print the results. Raises TargetError and WorkerStartError for wrong usage."""
    started = time.perf_counter()
    sources = find_sources(arguments.paths)
    python = find_interpreter(arguments.python, _roots(sources), os.environ)
    interpreter = asyncio.run(probe(python))
    if interpreter.torch is None:
        raise WorkerStartError(f"{python} has no torch", "no-torch", "")
    limits = limits_of(arguments)
    settings = EngineSettings(
        interpreter=python,
        cache_path=cache_path(arguments),
        workers=arguments.jobs or parallel_traces(limits.memory_bytes),
        limits=limits,
        trace_on_open=False,
    )
    kinds: list[TargetKind] = [kind for name, kind in KINDS.items() if arguments.only in (None, name)]
    reports: list[FileReport] = []
    progress, listing = Progress(sys.stderr, len(sources)), CheckListing(sys.stdout.isatty())
    listed = arguments.format == "text"

    def hear(report: FileReport) -> None:
        reports.append(report)
        if listed:
            progress.clear()
            print(listing.file(report), end="", flush=True)
        progress.file()

    interrupted = False
    try:
        asyncio.run(_check(settings, SurveyScope(sources, kinds, _codes(arguments)), hear, progress))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        progress.clear()
    seconds = time.perf_counter() - started
    _print_end(arguments, reports, interpreter, seconds)
    return 130 if interrupted else 1 if summarize(reports).problems else 0


async def _check(
    settings: EngineSettings, scope: SurveyScope, hear: Callable[[FileReport], None], progress: Progress
) -> None:
    engine = Engine(settings, lambda file: None, lambda status: None)
    try:
        await survey(engine, scope, settings.workers, hear, progress.target)
    finally:
        await engine.shutdown()


def _print_end(
    arguments: argparse.Namespace, reports: Sequence[FileReport], interpreter: Interpreter, seconds: float
) -> None:
    summary, format_ = summarize(reports), arguments.format
    if format_ == "text":
        print(list_summary(summary, seconds, sys.stdout.isatty()), end="")
        return
    if format_ == "json":
        document = {
            "version": __version__,
            "torch": interpreter.torch,
            "python": interpreter.path,
            "seconds": round(seconds, 3),
            "summary": wire.to_json(summary),
            "files": [to_json(report) for report in reports],
        }
        print(json.dumps(in_characters(document), indent=1))
    else:
        print(FORMATS[format_](reports, results_of(reports), Path.cwd()).rstrip("\n"))
    sys.stdout.flush()
    print(one_line_summary(summary, seconds), file=sys.stderr)


def _codes(arguments: argparse.Namespace) -> frozenset[FindingCode]:
    """Return the findings to report."""
    enabled: set[FindingCode] = set(FINDINGS if "all" in arguments.enable else arguments.enable)
    return frozenset(enabled if "all" in arguments.disable else (TOLD | enabled) - set(arguments.disable))


def _roots(sources: Sequence[Source]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(source.root for source in sources))


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)
