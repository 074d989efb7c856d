"""Print the results of one check in the requested format: file by file for people, at the end for programs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fx_lsp import __version__, wire
from fx_lsp.commands.check.baseline import Baseline, write_baseline
from fx_lsp.commands.check.costs import CostComparison, costs_data, costs_table, costs_text, note_text
from fx_lsp.commands.check.formats import to_github, to_gitlab, to_junit, to_sarif
from fx_lsp.commands.check.listing import CheckListing, Progress, list_summary, one_line_summary, statistics_lines
from fx_lsp.commands.check.results import CheckResult, Fingerprints, results_of
from fx_lsp.commands.check.survey import FileReport, SurveyScope, count_codes, summarize, to_json
from fx_lsp.commands.places import in_characters
from fx_lsp.features.wording.text import count
from fx_lsp.tracing.answers.disk import Dependency
from fx_lsp.tracing.workers.find_python import Interpreter

FORMATS: dict[str, Callable[[Sequence[FileReport], Sequence[CheckResult], Path], str]] = {
    "sarif": lambda _, results, base: json.dumps(to_sarif(results, base), indent=1),
    "github": lambda _, results, base: to_github(results, base),
    "gitlab": lambda _, results, base: json.dumps(to_gitlab(results, base), indent=1),
    "junit": to_junit,
}
"""The formats of code hosts and CI services."""


@dataclass(frozen=True)
class ReportOptions:
    """Hold the format of a report, the interpreter that it names, and the baseline to apply or, if it `writes`, to
    write. A report is complete if it has all kinds of targets. If it `has_costs`, standard output has a comparison of
    costs, and mistakes for people and commands of GitHub are on standard error. If it `has_statistics`, it ends with
    the number of mistakes of each code.
    """

    format: str
    interpreter: Interpreter
    baseline: Baseline | None = None
    writes: bool = False
    is_complete: bool = True
    has_costs: bool = False
    has_statistics: bool = False


class CheckReporter:
    """Report one check, which has `started` at a time of `time.perf_counter`: take its files one after another."""

    def __init__(self, options: ReportOptions, scope: SurveyScope, started: float) -> None:
        self._options, self._scope, self._started = options, scope, started
        baseline = options.baseline
        self._fingerprints = Fingerprints(baseline.file.parent if baseline is not None else Path.cwd())
        self._out = sys.stderr if options.has_costs else sys.stdout
        self._listing = CheckListing(self._out.isatty())
        self.reports: list[FileReport] = []
        self.progress = Progress(sys.stderr, len(scope.sources))

    def hear(self, report: FileReport) -> None:
        """Take the results of a file, and list them for people."""
        self._fingerprints.add(report)
        if self._options.baseline is not None:
            report = self._options.baseline.without_accepted(report, self._fingerprints)
        self.reports.append(report)
        if self._options.format == "text":
            self.progress.clear()
            print(self._listing.file(report), end="", file=self._out, flush=True)
        self.progress.file()

    def end(self, interrupted: bool = False, costs: CostComparison | None = None) -> int:
        """Print the rest and a comparison of costs, write the baseline, and return the exit code. Raises UsageError if
        it cannot be written.
        """
        self.progress.clear()
        options, summary = self._options, summarize(self.reports)
        seconds = time.perf_counter() - self._started
        accepted, fixed = self._of_baseline(interrupted)
        said = [] if options.baseline is None or options.writes else [_baseline_text(accepted, fixed)]
        said += statistics_lines(count_codes(self.reports)) if options.has_statistics else []
        if options.format == "text":
            lines = [list_summary(summary, seconds, self._out.isatty(), not interrupted).rstrip("\n"), *said]
            print("\n".join(lines), file=self._out, flush=True)
        else:
            document = self._document(seconds, accepted, fixed, costs).rstrip("\n")
            out = sys.stdout if options.format == "json" else self._out
            print(document, end="\n" if document else "", file=out, flush=True)
            print("\n".join([one_line_summary(summary, seconds), *said]), file=sys.stderr)
        if costs is not None:
            print(note_text(costs), end="", file=sys.stderr)
            shown = {"text": costs_text, "github": costs_table}.get(options.format)
            print("" if shown is None else shown(costs), end="", flush=True)
        if interrupted:
            return 130
        if options.baseline is not None and options.writes:
            number = write_baseline(options.baseline, self._fingerprints)
            print(f"wrote {count('mistake', number)} to {options.baseline.file}", file=sys.stderr)
            return 0
        return 1 if summary.problems else 0

    @property
    def dependencies(self) -> Iterator[Dependency]:
        """Return the files that the results so far depend on."""
        return (dependency for report in self.reports for dependency in report.dependencies)

    def _document(self, seconds: float, accepted: int, fixed: int, costs: CostComparison | None) -> str:
        options, reports = self._options, self.reports
        if options.format != "json":
            return FORMATS[options.format](reports, results_of(reports, self._fingerprints), Path.cwd())
        document = {
            "version": __version__,
            "torch": options.interpreter.torch,
            "python": options.interpreter.path,
            "seconds": round(seconds, 3),
            "summary": wire.to_json(summarize(reports)),
            "files": [to_json(report) for report in reports],
        }
        if options.baseline is not None and not options.writes:
            document["baseline"] = {"file": str(options.baseline.file), "accepted": accepted, "fixed": fixed}
        if options.has_statistics:
            document["statistics"] = [
                {"code": c, "severity": s, "count": n} for (c, s), n in count_codes(reports).items()
            ]
        if costs is not None:
            document["costs"] = costs_data(costs)
        return json.dumps(in_characters(document), indent=1)

    def _of_baseline(self, interrupted: bool) -> tuple[int, int]:
        """Return the number of mistakes that the baseline accepts, and of those in it that no longer occur."""
        baseline = self._options.baseline
        if baseline is None:
            return 0, 0
        whole = [source.file for source in self._scope.sources if source.names is None]
        codes: Collection[str] = self._scope.all_codes if self._options.is_complete and not interrupted else ()
        return len(baseline.met), baseline.fixed(whole, codes)


def _baseline_text(accepted: int, fixed: int) -> str:
    verb = "occurs" if fixed == 1 else "occur"
    more = [f"{fixed:,} of the baseline no longer {verb}"] if fixed else []
    return " · ".join([f"accepted by the baseline: {accepted:,}", *more])
