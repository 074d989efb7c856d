"""An open file as the engine sees it: its text, what is known of its targets, and how that moves with edits."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from fx_lsp.errors import WorkerStartError
from fx_lsp.model import Failure, FailureKind, Outcome, Target, Trace
from fx_lsp.tracing.analysis import Analysis, Texts
from fx_lsp.tracing.answers.disk import CachedTrace
from fx_lsp.tracing.answers.placed import PlacedAnswer, PlacedAnswers
from fx_lsp.tracing.answers.question import TargetQuestion
from fx_lsp.tracing.answers.relocation import line_map, relocate_span
from fx_lsp.tracing.background_tasks import Delayed
from fx_lsp.tracing.scheduler import Urgency
from fx_lsp.tracing.source.parsing import split_lines
from fx_lsp.tracing.source.targets import names_like
from fx_lsp.tracing.workers.interpreter import TracingInterpreter

T = TypeVar("T")
TYPING_SECONDS = 0.2
"""Edits that follow each other sooner are those of somebody who types."""
SLOW_SECONDS = 3.0
"""Traces that took longer wait for those of the same file that did not."""


class TraceProgress(Enum):
    """Tell how far the trace of a target's present text is: not begun nor wanted, on its way, or known."""

    NOT_TRACED = "not traced"
    TRACING = "tracing"
    TRACED = "traced"


@dataclass(frozen=True)
class TargetState:
    """A target and what is known of it.

    The outcome is that of the present text once that is traced; until then that of an earlier one, if there is any,
    moved to where its lines are now. `key` names the present text's trace, or is None before that is known. `seconds`
    is what tracing took with torch warm, None where the answer was known already.
    """

    target: Target
    outcome: Outcome | None
    progress: TraceProgress
    key: str | None
    seconds: float | None = None

    @property
    def pending(self) -> bool:
        """Return whether a newer outcome is on its way."""
        return self.progress is TraceProgress.TRACING

    @property
    def stale(self) -> bool:
        """Return whether the outcome is that of an earlier text."""
        return self.outcome is not None and self.progress is not TraceProgress.TRACED


@dataclass(frozen=True)
class FileState:
    """What is known of a file now.

    `syntax` is a failure of the whole file: it does not parse (then the targets are those of its last good text), or
    (kinds "interpreter" and "no-torch") nothing can be traced with its interpreter.
    """

    file: str
    text: str
    targets: tuple[TargetState, ...]
    syntax: Failure | None


class TextKeys:
    """The keys of what may be asked about one good text, and what is traced before what: the less code a target
    reaches, the sooner. `targets` are the keys of their traces."""

    def __init__(self, analysis: Analysis, keys: Mapping[str, str]) -> None:
        self.analysis = analysis
        self.targets = keys
        quick_first = sorted(keys, key=lambda name: len(analysis.plan(name).lines))
        self._order = {name: number for number, name in enumerate(quick_first)}
        self._questions = {key: TargetQuestion(name) for name, key in keys.items()}

    def __getitem__(self, question: TargetQuestion) -> str | None:
        """Return the key of a question, or None where its target is not there."""
        if question.target not in self.targets:
            return None
        lines = sorted(self.analysis.plan(question.target).lines) if question.work else ()
        key = question.key(self.targets[question.target], lines)
        self._questions[key] = question
        return key

    def question(self, key: str) -> TargetQuestion | None:
        """Return the question that was last seen to have a key."""
        return self._questions.get(key)

    def order(self, question: TargetQuestion) -> int:
        """Return the place of a question's target among those of the text."""
        return self._order[question.target]


class Requests:
    """Hold who waits for what is not known of a file yet. Each is asked again whenever something may have changed."""

    def __init__(self) -> None:
        self._questions = Counter[TargetQuestion]()
        self._changed = asyncio.Event()
        self._cancelled = 0

    def __contains__(self, question: TargetQuestion) -> bool:
        return self._questions[question] > 0

    def __iter__(self) -> Iterator[TargetQuestion]:
        return iter(+self._questions)

    def look_again(self) -> None:
        """Ask everyone who waits whether it is known by now."""
        self._changed.set()

    def cancel(self) -> None:
        """Have everyone who waits raise asyncio.CancelledError."""
        self._cancelled += 1
        self._changed.set()

    async def wait(self, look: Callable[[], T | None], *questions: TargetQuestion) -> T:
        """Return what `look` says, once that is not None. It waits for the answers to some questions."""
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
    """A file in an editor.

    `read` is the text that was read last, with why it cannot be used, if so; `good` the last analysis that parsed, and
    `keys` are those of its targets once they are known. In place of an `interpreter` there may be why there is none.
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
        """The text is another one. Once somebody types, that is: edits soon after each other, `rest` is how many
        seconds tracing waits for the next key."""
        now = asyncio.get_running_loop().time()
        self.rest = TYPING_SECONDS if now - self.edited < TYPING_SECONDS else 0.0
        if self.workspace != workspace:
            self.interpreter = self.read = None
        self.text, self.workspace, self.edited = text, workspace, now

    @property
    def broken(self) -> Failure | None:
        """Return why the text that was read last cannot be used, if so."""
        return self.read[1] if self.read is not None else None

    @property
    def trouble(self) -> WorkerStartError | None:
        """Return why nothing can be traced with the interpreter, if so."""
        if isinstance(self.interpreter, WorkerStartError):
            return self.interpreter
        return self.interpreter.error if self.interpreter is not None else None

    @property
    def is_read(self) -> bool:
        """Return whether the present text is the one that was read last."""
        return self.read is not None and self.read[0] == self.text

    @property
    def settled(self) -> bool:
        """Return whether everything that can be known of the present text without tracing is known."""
        if not self.is_read:
            return False
        return self.broken is not None or self.trouble is not None or self.present_keys is not None

    @property
    def present_keys(self) -> TextKeys | None:
        """Return the keys of the last good text, once they are known."""
        return self.keys if self.keys is not None and self.keys.analysis is self.good else None

    def key_of(self, question: TargetQuestion) -> str | None:
        """Return the key that a question has in the text whose keys are known; None where its target is not there."""
        return self.keys[question] if self.keys is not None else None

    def take_keys(self, keys: TextKeys) -> dict[TargetQuestion, str]:
        """Take the keys of a text, forget answers about targets that are gone, and return the keys of questions."""
        self.keys = keys
        self.answers.drop_others(keys.targets)
        return self.keys_of_questions(keys)

    def keys_of_questions(self, keys: TextKeys) -> dict[TargetQuestion, str]:
        """Return the keys of all targets of a text, and of other questions that have an answer or wait for one."""
        questions = [*map(TargetQuestion, keys.targets), *self.answers, *self.requests]
        return {question: key for question in questions if (key := keys[question]) is not None}

    def slowness(self, question: TargetQuestion) -> tuple[bool, int]:
        """Return what puts a trace after others: that its last one was slow, and how much code it reaches."""
        assert self.keys is not None, "what is traced has a key"
        answer = self.answers.get(question)
        slow = answer is not None and answer.seconds is not None and answer.seconds > SLOW_SECONDS
        return slow, self.keys.order(question)

    def traced(self) -> list[Target]:
        """Return the targets whose graphs are known."""
        targets = (
            (target, self.answers.get(TargetQuestion(n)))
            for n, target in (self.good.targets if self.good else {}).items()
        )
        return [target for target, answer in targets if answer is not None and isinstance(answer.outcome, Trace)]

    def show(self, question: TargetQuestion, key: str, answer: CachedTrace, seconds: float | None = None) -> None:
        """`answer` is what is known of the text whose keys are known; it took `seconds`, where it was traced now."""
        assert self.keys is not None, "the answer has a key"
        analysis = self.keys.analysis
        self.answers.put(question, key, answer, analysis.text, analysis.plan(question.target).lines, seconds)

    def current(self, question: TargetQuestion) -> PlacedAnswer | None:
        """Return the answer for the present text, or None while it is not known."""
        answer = self.answers.get(question)
        return answer if answer and self.settled and answer.key == self.key_of(question) else None

    def is_partly_known(self, question: TargetQuestion, key: str) -> bool:
        """Return whether the trace `key` has answered the question, and is still to add to that: its answer is stored
        once it has ended."""
        answer = self.answers.get(question)
        return answer is not None and answer.key == key and not answer.answer.final

    def progress(self, target: str, tracing: Container[str]) -> TraceProgress:
        """Return how far the trace of a target is; `tracing` tells which keys are being traced or wait for it.

        While a text does not parse, what is known is that of an earlier one.
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
    """Where the cursor is; `line` counts from 1, None before that is known."""

    file: str
    line: int | None = None


def urgency(files: Iterable[OpenFile], focus: Focus | None, key: str, unasked: bool) -> Urgency | None:
    """Return how urgent the trace `key` is: asked for, at the cursor, in the focused file, elsewhere, a variant of a
    target or a script as a whole; quick first.

    None where nobody wants it; without `unasked`, only what is asked for is wanted, to its end.
    """
    wanted: list[Urgency] = []
    for open_file in files:
        keys = open_file.keys
        question = keys.question(key) if keys is not None else None
        if keys is None or question is None or open_file.trouble is not None:
            continue
        if question in open_file.requests:
            rank = 0
        elif not unasked and not open_file.is_partly_known(question, key):
            continue
        elif question.variant or (target := keys.analysis.targets[question.target]).kind == "script":
            rank = 4
        elif focus is None or focus.file != open_file.file:
            rank = 3
        else:
            rank = 1 if focus.line and target.span.line <= focus.line <= target.span.end_line else 2
        wanted.append((rank, *open_file.slowness(question)))
    return min(wanted, default=None)


def trouble_of(open_file: OpenFile) -> Failure | None:
    """Return the failure of the whole file, if there is one."""
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
    """Return what a settled file knows, and the key of that ("" without one); None before a trace."""
    failure = trouble_of(open_file)
    if failure is not None:
        return failure, ""
    if open_file.key_of(question) is None:
        message = f"{open_file.file} has no function or module {question.target!r} that can be traced"
        names = [*open_file.good.targets] if open_file.good is not None else []
        return Failure("unsupported", message, hint=names_like(question.target, names)), ""
    answer = open_file.current(question)
    return None if answer is None else (answer.outcome, answer.key)


def unsaved_texts(files: Iterable[OpenFile]) -> Texts:
    """Return the last good text of every open file: one that does not parse would only break those that import it."""
    by_path = {open_file.file: open_file for open_file in files}
    good = {file: open_file.good for file, open_file in by_path.items() if open_file.good is not None}
    return Texts({file: (f.good.text if f.good else f.text) for file, f in by_path.items()}, good)


def build_state(open_file: OpenFile, tracing: Container[str]) -> FileState:
    """Return what an editor may show now. `tracing` tells which keys are being traced or wait for it.

    What turned out to be no tensor code is not among the targets.
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
    return FileState(open_file.file, text, tuple(_with_errors_of_scripts(targets)), trouble_of(open_file))


def _with_errors_of_scripts(targets: Sequence[TargetState]) -> Iterator[TargetState]:
    """Yield the targets; a step in which a script goes wrong fails likewise, even if its graphs could be captured.

    The graphs do not have what the script does between them, such as a step of its optimizer.
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
