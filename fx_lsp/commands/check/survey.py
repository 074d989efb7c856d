"""Trace every target of many files, with a bounded number of open files and busy tracers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from fx_lsp import wire
from fx_lsp.commands.places import line_name
from fx_lsp.commands.sources import Source, read_source
from fx_lsp.features.costs.changes import TargetCosts, costs_of, over_budget
from fx_lsp.features.costs.summary import stages_of_summary
from fx_lsp.features.source.comments import comment_problems, elsewhere
from fx_lsp.features.source.findings import TOLD, told_outcome, unknown_codes, unused_ignores
from fx_lsp.features.wording.problems import (
    Cause,
    Occurrence,
    Problem,
    by_cause,
    is_failure,
    problems,
    reached_failure,
    reached_remark,
)
from fx_lsp.messages.places import with_places
from fx_lsp.messages.texts import UNREADABLE_FILE
from fx_lsp.model import (
    Failure,
    FailureKind,
    FindingCode,
    InputSource,
    InputSpec,
    Outcome,
    ProblemSeverity,
    Remark,
    Severity,
    Target,
    TargetKind,
    Trace,
    known_trace,
)
from fx_lsp.tracing.answers.disk import Dependency
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.open_file import FileState
from fx_lsp.tracing.source.project import project_root, read_project

WEAKNESS: tuple[InputSource, ...] = (
    "default",  # from the code itself, not a guess, so no weaker than the sources of other inputs
    "comment",
    "settings",
    "recorded",
    "convention",
    "annotation",
    "call site",
    "search",
)
_WHOLE_FILE = frozenset[FailureKind]({"interpreter", "no-torch"})


@dataclass(frozen=True)
class TargetReport:
    """Hold the result of one target, without its large parts.

    `seconds` are those of the trace with torch imported, or of the look-up of a stored answer. A failure that is
    `accepted` is in the baseline, and is not reported. `costs` are those of a traced target, if they were asked for.
    """

    target: Target
    outcome: Outcome
    seconds: float
    accepted: bool = False
    costs: TargetCosts | None = None

    @property
    def failure(self) -> Failure | None:
        """Return why the target was not traced."""
        return self.outcome if isinstance(self.outcome, Failure) else None

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """Return the remarks of the trace."""
        return () if isinstance(self.outcome, Failure) else self.outcome.remarks

    @property
    def source(self) -> InputSource | None:
        """Return the weakest source of any input, "default" if none was needed; None if no inputs were found."""
        return weakest(self.outcome.inputs) if self.outcome.inputs or self.failure is None else None


@dataclass(frozen=True)
class FileReport:
    """Hold the result of one file; `failure` is the reason if nothing in it could be checked, and is not reported if it
    is `accepted`: in the baseline.

    `comments` are errors in its `# fx:` comments that did not prevent a trace, and costs over the budget of the
    project. `dependencies` are what the results of
    its targets depend on.
    """

    file: str
    targets: tuple[TargetReport, ...] = ()
    failure: Failure | None = None
    comments: tuple[Failure, ...] = ()
    accepted: bool = False
    dependencies: tuple[Dependency, ...] = ()

    @property
    def failures(self) -> list[Failure]:
        """Return the failures of the whole file and of its targets."""
        return [f for f in (self.failure, *(t.failure for t in self.targets)) if f is not None]


@dataclass(frozen=True)
class Summary:
    """Count over all files; a mistake that several targets reach counts once. `problems` are errors in the code and in
    comments, and unreadable files; `warnings` are for code that only runs by accident, or with no inputs;
    `information` are other remarks on traced code; `internal_errors` are bugs of fx-lsp.
    """

    files: int
    found: int
    traced: int
    problems: int
    sources: dict[InputSource, int]
    failures: dict[FailureKind, int]
    warnings: int = 0
    information: int = 0
    internal_errors: int = 0


@dataclass(frozen=True)
class SurveyScope:
    """Hold the targets of `kinds` in `sources`, the `codes` of the findings to report, and the `jobs`: traces at once.

    `texts` replace files on disk by path, also files that sources only import. If it `has_costs`, reports have those of
    their targets.
    """

    sources: Sequence[Source]
    kinds: Collection[TargetKind]
    codes: Collection[FindingCode] = TOLD
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    has_costs: bool = False
    jobs: int = 1

    @property
    def all_codes(self) -> frozenset[str]:
        """Return the codes of everything that is reported: these findings, failures and requirements of traces."""
        return frozenset({*self.codes, *get_args(FailureKind), "dimension", "graph"})


@dataclass
class SurveyProgress:
    """Count the targets of a survey: those `found` in the files read so far, those `finished`, and those `running`."""

    found: int = 0
    finished: int = 0
    running: list[str] = field(default_factory=list[str])

    def show(self) -> None:
        """Show the counts, which have changed; here, do nothing."""


async def survey(
    engine: Engine, scope: SurveyScope, on_file: Callable[[FileReport], None], progress: SurveyProgress
) -> None:
    """Trace targets. `on_file` is called with the files in order; on cancellation, it gets the results so far."""
    traces, opened = asyncio.Semaphore(scope.jobs), asyncio.Semaphore(scope.jobs + 2)
    works = [_Work(source) for source in scope.sources]

    async def look(work: _Work) -> None:
        async with opened:
            await _look(engine, work, scope, traces, progress)

    for file, text in scope.texts.items():
        engine.open(file, text, (project_root(file),))
    tasks = [asyncio.create_task(look(work)) for work in works]
    reported = 0
    try:
        for work, task in zip(works, tasks, strict=True):
            await task
            reported += 1
            on_file(work.report())
    except asyncio.CancelledError:
        for work in works[reported:]:
            if work.failure is not None or work.targets:
                on_file(work.report())
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for file in scope.texts:
            engine.close(file)


@dataclass
class _Work:
    source: Source
    failure: Failure | None = None
    targets: list[TargetReport] = field(default_factory=list[TargetReport])
    comments: list[Problem] = field(default_factory=list[Problem])
    dependencies: dict[Dependency, None] = field(default_factory=dict[Dependency, None])

    def take_errors_of_scripts(self, state: FileState | None, tell: Callable[[Outcome], Outcome]) -> None:
        """Replace the reports on traced steps in which a script turned out to fail, by what to `tell` of that."""
        outcomes = {target.target.name: target.outcome for target in state.targets} if state is not None else {}
        for place, report in enumerate(self.targets):
            outcome = outcomes.get(report.target.name)
            if report.target.kind == "step" and report.failure is None and isinstance(outcome, Failure):
                self.targets[place] = report_target(report.target, tell(outcome), report.seconds)

    def report(self) -> FileReport:
        ordered = sorted(self.targets, key=lambda t: (t.target.span.line, t.target.span.col))
        failures = (t.failure for t in ordered if t.failure is not None and t.failure.kind == "comment")
        said = [failure.span for failure in failures if failure.span is not None]
        comments = (_failure_of(problem) for problem in elsewhere(self.comments, said))
        dependencies = tuple(self.dependencies)
        return FileReport(self.source.file, tuple(ordered), self.failure, tuple(comments), dependencies=dependencies)


def _failure_of(problem: Problem) -> Failure:
    severity: Severity = "error" if problem.severity == "error" else "information"
    kind: FailureKind = "budget" if problem.code == "budget" else "comment"
    return Failure(kind, problem.message.removesuffix("."), problem.span, severity=severity)


async def _look(
    engine: Engine,
    work: _Work,
    scope: SurveyScope,
    traces: asyncio.Semaphore,
    progress: SurveyProgress,
) -> None:
    file, names = work.source.file, work.source.names

    async def trace(target: Target) -> None:
        budget = project.budgets.get(target.name, {})
        async with traces:
            progress.running.append(target.name)
            progress.show()
            started = time.perf_counter()
            outcome = await engine.outcome(file, target.name, final=True)
            waited = time.perf_counter() - started
            work.dependencies |= dict.fromkeys(engine.dependencies(file, target.name, ""))
            costs = await _costs(engine, target, outcome) if scope.has_costs or budget else None
            progress.running.remove(target.name)
            progress.finished += 1
        if names is None and isinstance(outcome, Failure) and outcome.kind == "nothing":
            return
        outcomes.append((target, outcome))
        work.comments += over_budget(target, costs, budget) if costs is not None else ()
        report = report_target(target, tell(with_places(outcome, file, line_name)), _seconds(engine, target, waited))
        work.targets.append(replace(report, costs=costs))

    try:
        replaced = scope.texts.get(file, work.source.text)
        text = read_source(file) if replaced is None else replaced
    except (OSError, SyntaxError, ValueError) as error:
        work.failure = UNREADABLE_FILE.failure(error=getattr(error, "strerror", None) or error)
        return
    project, outcomes = read_project(file), list[tuple[Target, Outcome]]()

    def tell(outcome: Outcome) -> Outcome:
        return told_outcome(outcome, scope.codes, text, project.severities)

    engine.open(file, text, (work.source.root,))
    try:
        targets = await engine.targets(file)
        if isinstance(targets, Failure):
            work.failure = targets
            return
        wanted = [t for t in targets if t.kind in scope.kinds and (names is None or t.name in names)]
        progress.found += len(wanted)
        if names is None:
            work.comments += [*comment_problems(file, text, targets), *unknown_codes(file, text)]
        await asyncio.gather(*(trace(target) for target in wanted))
        if names is None and wanted == [*targets]:
            work.comments += unused_ignores(file, text, outcomes, problems(file, outcomes, None))
        work.take_errors_of_scripts(engine.state(file), tell)
    finally:
        if file not in scope.texts:
            engine.close(file)


async def _costs(engine: Engine, target: Target, outcome: Outcome) -> TargetCosts | None:
    """Return the costs of a traced target; None for one without operations of PyTorch."""
    if isinstance(outcome, Failure) or target.kind in ("graph", "script") or not outcome.stages:
        return None
    stages = [await engine.stage(target.file, target.name, name) for name in stages_of_summary(outcome)]
    breaks = await engine.outcome(target.file, target.name, "breaks", final=True) if target.kind != "step" else None
    complete = [stage for stage in stages if not isinstance(stage, Failure)]
    return costs_of(outcome, complete, known_trace(breaks) if breaks else None) if complete == stages else None


def _seconds(engine: Engine, target: Target, waited: float) -> float:
    state = engine.state(target.file)
    seconds = next((t.seconds for t in state.targets if t.target.name == target.name), None) if state else None
    return waited if seconds is None else seconds


def report_target(target: Target, outcome: Outcome, seconds: float) -> TargetReport:
    """Return the report on one target."""
    if isinstance(outcome, Failure):
        return TargetReport(target, replace(outcome, output=""), seconds)
    small = replace(outcome, values=(), outputs=(), unreached=(), variants=(), named=(), modules=())
    return TargetReport(target, small, seconds)


def weakest(inputs: Iterable[InputSpec]) -> InputSource:
    """Return the least certain source of the inputs; "default" without any."""
    sources = {i.source for i in inputs}
    for source in reversed(WEAKNESS):
        if source in sources:
            return source
    return WEAKNESS[0]


def is_problem(failure: Failure, whole_file: bool = False) -> bool:
    """Return True if the code is wrong, or (`whole_file`) if nothing of it could be checked."""
    return whole_file or failure.severity == "error" or failure.kind in _WHOLE_FILE


def reached_by(report: TargetReport) -> Iterator[Occurrence]:
    """Yield the mistakes that a target reaches: its failure unless it is accepted, or the remarks of its trace."""
    failure = report.failure
    if failure is not None and not report.accepted:
        severity = "error" if is_problem(failure) else failure.severity
        yield reached_failure(report.target, failure, severity)
    yield from (reached_remark(report.target, remark) for remark in report.remarks)


def faults_of(reports: Iterable[FileReport]) -> dict[Cause, list[Occurrence]]:
    """Return the mistakes in all files, each with the targets that reach it; it is listed at the first."""
    return by_cause(one for report in reports for target in report.targets for one in reached_by(target))


def count_codes(reports: Iterable[FileReport]) -> dict[tuple[str, ProblemSeverity], int]:
    """Return the number of mistakes by code and severity, the most frequent first; a mistake that several targets reach
    counts once.
    """
    surveyed = list(reports)
    counts = Counter[tuple[str, ProblemSeverity]](
        (several[0].code, several[0].severity) for several in faults_of(surveyed).values()
    )
    for report in surveyed:
        whole = report.failure if report.failure is not None and not report.accepted else None
        counts.update(
            (f.kind, "error" if is_problem(f, f is whole) else f.severity) for f in (whole, *report.comments) if f
        )
    return dict(counts.most_common())


def summarize(reports: Iterable[FileReport]) -> Summary:
    """Count over `reports`; sources and kinds that did not occur are left out, the most frequent kind is first."""
    surveyed = list(reports)
    targets = [target for report in surveyed for target in report.targets]
    sources = Counter(t.source for t in targets if t.failure is None and t.source is not None)
    failures = Counter[FailureKind](f.kind for report in surveyed for f in report.failures)
    listed = [several[0] for several in faults_of(surveyed).values()]
    severities = Counter(one.severity for one in listed)
    whole = sum(report.failure is not None and not report.accepted for report in surveyed)
    comments = Counter(is_problem(comment) for report in surveyed for comment in report.comments)
    remarks = sum(not is_failure(one.code) for one in listed if one.severity not in ("error", "warning"))
    order: tuple[InputSource, ...] = (*WEAKNESS[1:], WEAKNESS[0])
    return Summary(
        files=len(surveyed),
        found=len(targets),
        traced=sources.total(),
        problems=severities["error"] + whole + comments[True],
        sources={source: sources[source] for source in order if sources[source]},
        failures=dict[FailureKind, int](failures.most_common()),
        warnings=severities["warning"],
        information=remarks + comments[False],
        internal_errors=failures["internal"],
    )


def to_json(report: FileReport) -> dict[str, Any]:
    """Return the part of the JSON document for one file."""
    return {
        "file": report.file,
        "failure": None if report.accepted else _failure(report.failure),
        "targets": [_target(target) for target in report.targets],
        "comments": [_failure(comment) for comment in report.comments],
    }


def _target(report: TargetReport) -> dict[str, Any]:
    """Return the part for one target: operations and bytes are null if there is no such graph."""
    trace = report.outcome if isinstance(report.outcome, Trace) else None
    names = "forward", "backward", "graph" if report.target.kind == "graph" else "inference"
    forward, backward, other = (None if trace is None else trace.ops(name) for name in names)
    saved = None if trace is None or forward is None else trace.activation_bytes
    return {
        "target": report.target.id,
        "kind": report.target.kind,
        "traced": trace is not None,
        "ops": {"forward": other if forward is None else forward, "backward": backward},
        "activation_bytes": saved,
        "inputs": wire.to_json(report.outcome.inputs),
        "source": report.source,
        "notes": [] if trace is None else list(trace.notes),
        "remarks": wire.to_json(report.remarks),
        "seconds": round(report.seconds, 4),
        "failure": None if report.accepted else _failure(report.failure),
        "accepted": report.accepted,
    }


def _failure(failure: Failure | None) -> dict[str, Any] | None:
    fields = ("kind", "message", "span", "hint", "severity")
    return None if failure is None else {k: wire.to_json(getattr(failure, k)) for k in fields}
