"""Track an open file: its text, the answers on its targets, and their positions through edits."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from fx_lsp.errors import WorkerStartError
from fx_lsp.messages.requests import NO_SUCH_TARGET
from fx_lsp.model import Failure, FailureKind, Outcome, Target, Trace
from fx_lsp.tracing.analysis import Analysis, Texts
from fx_lsp.tracing.answers.disk import CachedTrace, Dependency
from fx_lsp.tracing.answers.placed import PlacedAnswer, PlacedAnswers, TargetText
from fx_lsp.tracing.answers.question import TargetQuestion
from fx_lsp.tracing.answers.relocation import line_map, relocate_span
from fx_lsp.tracing.background_tasks import Delayed
from fx_lsp.tracing.scheduler import Priority, Urgency
from fx_lsp.tracing.source.parsing import split_lines
from fx_lsp.tracing.source.targets import names_like
from fx_lsp.tracing.workers.interpreter import TracingInterpreter

T = TypeVar("T")
TYPING_SECONDS = 0.2
"""The longest time in seconds between two edits that counts as typing."""
SLOW_SECONDS = 3.0
"""Traces that took longer, in seconds, wait for the faster ones of the same file."""


class TraceProgress(Enum):
    """The progress of the trace of a target's current text: neither begun nor wanted, running or queued, or done."""

    NOT_TRACED = "not traced"
    TRACING = "tracing"
    TRACED = "traced"


@dataclass(frozen=True)
class TargetState:
    """Hold a target with its outcome.

    The outcome is that of the current text once it is traced; until then that of an earlier text, if any, moved to the
    current lines. `key` identifies the current text's trace, or is None until it is computed. `seconds` is the time of
    tracing with torch imported, None for a stored answer.
    """

    target: Target
    outcome: Outcome | None
    progress: TraceProgress
    key: str | None
    seconds: float | None = None

    @property
    def pending(self) -> bool:
        """Return True if a newer outcome is pending."""
        return self.progress is TraceProgress.TRACING

    @property
    def stale(self) -> bool:
        """Return True if the outcome is that of an earlier text."""
        return self.outcome is not None and self.progress is not TraceProgress.TRACED


@dataclass(frozen=True)
class FileState:
    """Hold the current state of a file.

    `syntax` is a failure of the whole file: it does not parse (then the targets are those of its last good text), or
    (kinds "interpreter" and "no-torch") its interpreter cannot trace. `program` is the name of the target that runs the
    whole file, "" if it is no program.
    """

    file: str
    text: str
    targets: tuple[TargetState, ...]
    syntax: Failure | None
    program: str = ""


@dataclass(frozen=True)
class StoredState:
    """Hold the state of a file that is not open, None if it does not parse, and what its answers depend on."""

    text: str
    state: FileState | None
    dependencies: tuple[Dependency, ...]


class TextKeys:
    """Hold the keys of possible questions about one good text, and the order of traces: targets that reach less code
    come first. `targets` are the keys of their traces.
    """

    def __init__(self, analysis: Analysis, keys: Mapping[str, str]) -> None:
        self.analysis = analysis
        self.targets = keys
        quick_first = sorted(keys, key=lambda name: len(analysis.plan(name).lines))
        self._order = {name: number for number, name in enumerate(quick_first)}
        self._questions = {key: TargetQuestion(name) for name, key in keys.items()}

    def __getitem__(self, question: TargetQuestion) -> str | None:
        """Return the key of a question, or None if the text does not have its target."""
        if question.target not in self.targets:
            return None
        lines = sorted(self.analysis.plan(question.target).lines) if question.work else ()
        key = question.key(self.targets[question.target], lines)
        self._questions[key] = question
        return key

    def question(self, key: str) -> TargetQuestion | None:
        """Return the last question that had a key, or None."""
        return self._questions.get(key)

    def order(self, question: TargetQuestion) -> int:
        """Return the rank of a question's target among those of the text."""
        return self._order[question.target]


class Requests:
    """Hold the waiting requests of a file. Each is checked again after every possible change."""

    def __init__(self) -> None:
        self._questions = Counter[TargetQuestion]()
        self._changed = asyncio.Event()
        self._cancelled = 0

    def __contains__(self, question: TargetQuestion) -> bool:
        return self._questions[question] > 0

    def __iter__(self) -> Iterator[TargetQuestion]:
        return iter(+self._questions)

    def look_again(self) -> None:
        """Check every waiting request again."""
        self._changed.set()

    def cancel(self) -> None:
        """Make every waiting request raise asyncio.CancelledError."""
        self._cancelled += 1
        self._changed.set()

    async def wait(self, look: Callable[[], T | None], *questions: TargetQuestion) -> T:
        """Return the result of `look`, once it is not None. The request waits for the answers to `questions`."""
        cancelled = self._cancelled
        self._questions.update(questions)
        try:
            while True:
                self._changed.clear()
                if self._cancelled != cancelled:
                    raise asyncio.CancelledError
                if (answer := look()) is not None:
                    return answer
                await self._changed.wait()
        finally:
            self._questions.subtract(questions)


@dataclass(eq=False)
class OpenFile:
    """Hold a file in an editor.

    `read` is the text that was parsed last, with its failure, if any; `good` is the last analysis that parsed, and
    `keys` are those of its targets once computed. `interpreter` may be the error of starting it.
    """

    file: str
    text: str
    workspace: tuple[str, ...]
    answers: PlacedAnswers
    requests: Requests = field(default_factory=Requests)
    reading: Delayed = field(default_factory=Delayed)
    read: tuple[str, Failure | None] | None = None
    good: Analysis | None = None
    keys: TextKeys | None = None
    interpreter: TracingInterpreter | WorkerStartError | None = None
    state: FileState | None = None
    edited: float = -math.inf
    rest: float = 0.0

    def edit(self, text: str, workspace: tuple[str, ...]) -> None:
        """Replace the text. If edits follow each other quickly, `rest` is how many seconds tracing waits for the next
        key.
        """
        now = asyncio.get_running_loop().time()
        self.rest = TYPING_SECONDS if now - self.edited < TYPING_SECONDS else 0.0
        if self.workspace != workspace:
            self.interpreter = self.read = None
        self.text, self.workspace, self.edited = text, workspace, now

    @property
    def broken(self) -> Failure | None:
        """Return the failure of the text that was parsed last, if any."""
        return self.read[1] if self.read is not None else None

    @property
    def trouble(self) -> WorkerStartError | None:
        """Return the error of the interpreter, if any."""
        if isinstance(self.interpreter, WorkerStartError):
            return self.interpreter
        return self.interpreter.error if self.interpreter is not None else None

    @property
    def is_read(self) -> bool:
        """Return True if the current text is the one that was parsed last."""
        return self.read is not None and self.read[0] == self.text

    @property
    def settled(self) -> bool:
        """Return True if everything that needs no trace is known of the current text."""
        if not self.is_read:
            return False
        return self.broken is not None or self.trouble is not None or self.present_keys is not None

    @property
    def present_keys(self) -> TextKeys | None:
        """Return the keys of the last good text, once they are computed."""
        return self.keys if self.keys is not None and self.keys.analysis is self.good else None

    def key_of(self, question: TargetQuestion) -> str | None:
        """Return the key of a question in the text with computed keys; None if that does not have its target."""
        return self.keys[question] if self.keys is not None else None

    def take_keys(self, keys: TextKeys) -> dict[TargetQuestion, str]:
        """Store the keys of a text, and drop the answers on removed targets. Return the keys of all targets, and of the
        other known or pending questions.
        """
        self.keys = keys
        self.answers.drop_others(keys.targets)
        return self.keys_of_questions(keys)

    def keys_of_questions(self, keys: TextKeys) -> dict[TargetQuestion, str]:
        """Return the keys of all targets of a text, and of the other known or pending questions."""
        questions = [*map(TargetQuestion, keys.targets), *self.answers, *self.requests]
        return {question: key for question in questions if (key := keys[question]) is not None}

    def slowness(self, question: TargetQuestion) -> tuple[bool, int]:
        """Return a sort key for a trace: whether its last run was slow, and how much code it reaches."""
        assert self.keys is not None, "what is traced has a key"
        answer = self.answers.get(question)
        slow = answer is not None and answer.seconds is not None and answer.seconds > SLOW_SECONDS
        return slow, self.keys.order(question)

    def traced(self) -> list[Target]:
        """Return the targets with a trace."""
        targets = (
            (target, self.answers.get(TargetQuestion(n)))
            for n, target in (self.good.targets if self.good else {}).items()
        )
        return [target for target, answer in targets if answer is not None and isinstance(answer.outcome, Trace)]

    def show(self, question: TargetQuestion, key: str, answer: CachedTrace, seconds: float | None = None) -> None:
        """Store an answer for the text with computed keys; `seconds` is the time of a new trace."""
        assert self.keys is not None, "the answer has a key"
        analysis = self.keys.analysis
        now = TargetText(analysis.text, analysis.plan(question.target).lines)
        self.answers.put(question, key, answer, now, seconds)

    def current(self, question: TargetQuestion) -> PlacedAnswer | None:
        """Return the answer for the current text, or None until it is available."""
        answer = self.answers.get(question)
        return answer if answer and self.settled and answer.key == self.key_of(question) else None

    def is_partly_known(self, question: TargetQuestion, key: str) -> bool:
        """Return True if the trace `key` has answered the question, and a more complete answer follows; its answer is
        stored once it has ended.
        """
        answer = self.answers.get(question)
        return answer is not None and answer.key == key and not answer.answer.final

    def progress(self, target: str, tracing: Container[str]) -> TraceProgress:
        """Return the progress of the trace of a target; `tracing` contains the keys of running and queued traces.

        While a text does not parse, the answer is that of an earlier one.
        """
        question = TargetQuestion(target)
        key = self.present_keys[question] if self.present_keys is not None else None
        answer = self.answers.get(question)
        is_coming = key is not None and key in tracing and (answer is None or answer.key != key)
        if is_coming or (self.broken is None and not self.settled):
            return TraceProgress.TRACING
        return TraceProgress.TRACED if self.broken is None and self.current(question) else TraceProgress.NOT_TRACED


@dataclass(frozen=True)
class Focus:
    """Hold the place of the cursor; `line` counts from 1, None if unknown."""

    file: str
    line: int | None = None


def urgency(files: Iterable[OpenFile], focus: Focus | None, key: str, unasked: bool) -> Urgency | None:
    """Return the urgency of the trace `key`: requested, at the cursor, in the focused file, elsewhere, a variant of a
    target or a whole script; fast traces first.

    None if it is not needed. Without `unasked`, only requested traces are needed, to their end.
    """
    wanted: list[Urgency] = []
    for open_file in files:
        keys = open_file.keys
        question = keys.question(key) if keys is not None else None
        if keys is None or question is None or open_file.trouble is not None:
            continue
        if question in open_file.requests:
            priority = Priority.REQUESTED
        elif not unasked and not open_file.is_partly_known(question, key):
            continue
        elif question.variant or (target := keys.analysis.targets[question.target]).kind == "script":
            priority = Priority.EXTRA
        elif focus is None or focus.file != open_file.file:
            priority = Priority.ELSEWHERE
        elif focus.line and target.span.line <= focus.line <= target.span.end_line:
            priority = Priority.AT_CURSOR
        else:
            priority = Priority.FOCUSED_FILE
        wanted.append(Urgency(priority, *open_file.slowness(question)))
    return min(wanted, default=None)


def trouble_of(open_file: OpenFile) -> Failure | None:
    """Return the failure of the whole file, or None."""
    error, good = open_file.trouble, open_file.good
    if open_file.broken is not None or error is None:
        return open_file.broken
    kind: FailureKind = "no-torch" if error.kind == "no-torch" else "interpreter"
    span = good.import_span() if good else None
    return Failure(kind, str(error), span, error.hint, output=error.output[-4096:])


def known_targets(open_file: OpenFile) -> tuple[Target, ...] | Failure:
    """Return the targets of a settled file in order, or the failure of the whole file."""
    good = open_file.good
    return trouble_of(open_file) or tuple(good.targets.values() if good else ())


def known_outcome(open_file: OpenFile, question: TargetQuestion) -> tuple[Outcome, str] | None:
    """Return the outcome of a settled file, and its key ("" without one); None before a trace."""
    failure = trouble_of(open_file)
    if failure is not None:
        return failure, ""
    if open_file.key_of(question) is None:
        names = [*open_file.good.targets] if open_file.good is not None else []
        hint = names_like(question.target, names)
        return NO_SUCH_TARGET.failure(hint=hint, file=open_file.file, name=question.target), ""
    answer = open_file.current(question)
    return None if answer is None else (answer.outcome, answer.key)


def unsaved_texts(files: Iterable[OpenFile]) -> Texts:
    """Return the last good text of every open file: a text that does not parse would only break the files that import
    it.
    """
    by_path = {open_file.file: open_file for open_file in files}
    good = {file: open_file.good for file, open_file in by_path.items() if open_file.good is not None}
    return Texts({file: (f.good.text if f.good else f.text) for file, f in by_path.items()}, good)


def build_state(open_file: OpenFile, tracing: Container[str]) -> FileState:
    """Return the state that an editor may show. `tracing` contains the keys of running and queued traces.

    Targets that turned out not to be tensor code are left out.
    """
    good, text, keys = open_file.good, open_file.text, open_file.present_keys
    targets: list[TargetState] = []
    for name, target in good.targets.items() if good is not None else ():
        assert good is not None
        answer, outcome = open_file.answers.get(TargetQuestion(name)), open_file.answers.outcome(name, text)
        if isinstance(outcome, Failure) and outcome.kind == "nothing":
            continue
        mapping = line_map(good.text, text)
        moved = target if mapping is None else _move_target(target, mapping, len(split_lines(text)))
        key = keys[TargetQuestion(name)] if keys is not None else None
        progress = open_file.progress(name, tracing)
        targets.append(TargetState(moved, outcome, progress, key, answer.seconds if answer else None))
    programs = [target.name for target in good.targets.values() if target.kind == "script"] if good is not None else []
    shown = tuple(_with_errors_of_scripts(targets))
    return FileState(open_file.file, text, shown, trouble_of(open_file), *programs)


def _with_errors_of_scripts(targets: Sequence[TargetState]) -> Iterator[TargetState]:
    """Yield the targets; a step in which a script fails also fails, even if its graphs were captured.

    The graphs do not contain the script's code between them, such as an optimizer step.
    """
    failures = [s.outcome for s in targets if s.target.kind == "script" and isinstance(s.outcome, Failure)]
    errors = [failure for failure in failures if failure.severity == "error" and failure.span is not None]
    for state in targets:
        trace, span = state.outcome, state.target.span
        inside = [error for error in errors if error.span is not None and span.contains(error.span)]
        if state.target.kind == "step" and isinstance(trace, Trace) and inside:
            yield replace(state, outcome=replace(inside[0], inputs=trace.inputs, partial=trace))
        else:
            yield state


def _move_target(target: Target, mapping: Mapping[int, int], lines: int) -> Target:
    name_span = relocate_span(target.name_span, target.file, mapping)
    if name_span is None:
        line = min(target.name_span.line, lines)
        name_span = replace(target.name_span, line=line, end_line=line)
    start = mapping.get(target.span.line, min(target.span.line, name_span.line))
    end = mapping.get(target.span.end_line, min(max(target.span.end_line, name_span.line), lines))
    return replace(target, name_span=name_span, span=replace(target.span, line=start, end_line=max(start, end)))
