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
from pathlib import Path

from fx_lsp.commands.baseline import Baseline, new_baseline, read_baseline
from fx_lsp.commands.importers import affected_by
from fx_lsp.commands.options import add_tracing_options, cache_path, limits_of
from fx_lsp.commands.reporting import FORMATS, CheckReporter, ReportOptions
from fx_lsp.commands.revisions import changed_since
from fx_lsp.commands.sources import Source, find_sources
from fx_lsp.commands.survey import SurveyScope, survey
from fx_lsp.errors import WorkerStartError
from fx_lsp.features.findings import FINDINGS, TOLD
from fx_lsp.features.text import count
from fx_lsp.model import FindingCode, TargetKind
from fx_lsp.tracing.engine import Engine, EngineSettings
from fx_lsp.tracing.workers.capacity import parallel_traces
from fx_lsp.tracing.workers.find_python import find_interpreter, probe

KINDS: dict[str, TargetKind] = {
    "functions": "function",
    "modules": "module",
    "methods": "method",
    "graphs": "graph",
    "steps": "step",
    "scripts": "script",
}


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
    baseline = _baseline(arguments)
    sources = _sources(arguments)
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
    scope = SurveyScope(sources, kinds, _codes(arguments))
    options = ReportOptions(arguments.format, interpreter, baseline, writes=arguments.write_baseline is not None)
    reporter = CheckReporter(options, scope, is_complete=arguments.only is None)
    interrupted = False
    try:
        asyncio.run(_check(settings, scope, reporter))
    except KeyboardInterrupt:
        interrupted = True
    finally:
        reporter.progress.clear()
    return reporter.end(time.perf_counter() - started, interrupted)


async def _check(settings: EngineSettings, scope: SurveyScope, reporter: CheckReporter) -> None:
    engine = Engine(settings, lambda file: None, lambda status: None)
    try:
        await survey(engine, scope, settings.workers, reporter.hear, reporter.progress.target)
    finally:
        await engine.shutdown()


def _sources(arguments: argparse.Namespace) -> list[Source]:
    """Return the files to check. Raises UsageError."""
    sources = find_sources(arguments.paths)
    if arguments.since is None:
        return sources
    affected = affected_by(changed_since(arguments.since, (_folder(source) for source in sources)), sources)
    print(f"{len(affected):,} of {count('file', len(sources))} changed since {arguments.since}", file=sys.stderr)
    return affected


def _folder(source: Source) -> str:
    return str(Path(source.file).parent)


def _baseline(arguments: argparse.Namespace) -> Baseline | None:
    """Return the baseline to apply or to write. Raises UsageError."""
    if arguments.write_baseline is not None:
        return new_baseline(arguments.write_baseline)
    return None if arguments.baseline is None else read_baseline(arguments.baseline)


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
