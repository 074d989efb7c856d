"""An open file as the engine sees it: its text, what is known of its targets, and how that moves with edits."""

from __future__ import annotations

import asyncio
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from fx_lsp.errors import WorkerStartError
from fx_lsp.model import (
    Failure,
    FailureKind,
    InputSpec,
    Outcome,
    Remark,
    Stage,
    Target,
    Trace,
    Work,
    variant_of,
    variant_work,
)
from fx_lsp.tracing.analysis import Analysis, Texts
from fx_lsp.tracing.answers.disk import CachedTrace
from fx_lsp.tracing.answers.relocation import edited_lines, relocate_outcome, relocate_span, relocate_stage
from fx_lsp.tracing.answers.variants import untried, with_variant_outcome
from fx_lsp.tracing.scheduler import Urgency
from fx_lsp.tracing.source.parsing import split_lines
from fx_lsp.tracing.workers.interpreter import TracingInterpreter

T = TypeVar("T")
TYPING_SECONDS = 0.2
"""Edits that follow each other sooner are those of somebody who types."""
SLOW_SECONDS = 3.0
"""Traces that took longer wait for those of the same file that did not."""
_LINES = re.compile(r"(\w+)=(\d+)-(\d+)")
"""Work that is about some lines of the target's file."""


@dataclass(frozen=True)
class TargetState:
    """A target and what is known of it.

    `stale`: the outcome is of an earlier text, moved to where its lines are now. `pending`: a newer one is on its
    way. `key` names the present text's trace, or is None before that is known. `seconds` is what tracing took with
    torch warm, None where the answer was known already.
    """

    target: Target
    outcome: Outcome | None
    pending: bool
    stale: bool
    key: str | None
    seconds: float | None = None


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


@dataclass(frozen=True)
class PlacedAnswer:
    """The newest answer for a target, `outcome` at the positions that it has in `text`.

    `key` is "" once something that the answer depends on has changed. `moved` maps the answer's own lines to those of
    `text`; None where they are the same.
    """

    key: str
    text: str
    answer: CachedTrace
    outcome: Outcome
    moved: Mapping[int, int] | None
    seconds: float | None


def entry_of(name: str, work: Work) -> str:
    """Return what is asked about a target, as one word: `Block`, or `Block?passes` with work besides tracing it."""
    return f"{name}?{work}" if work else name


def split_entry(entry: str) -> tuple[str, Work]:
    """Return the name of the target and the work; the inverse of `entry_of`."""
    name, _, work = entry.partition("?")
    return name, work


@dataclass(eq=False)
class OpenFile:
    """`good` is the last analysis that parsed; `keys` are its targets' cache keys, once `resolved` is it.

    What is known, awaited and shown goes by entries (`entry_of`). `inputs` are what each target was last traced with,
    `order` what is traced before what: the less code a target reaches, the sooner.
    """

    file: str
    text: str
    workspace: tuple[str, ...]
    failure: Failure | None = None
    trouble: WorkerStartError | None = None
    good: Analysis | None = None
    read_text: str | None = None
    resolved: Analysis | None = None
    keys: dict[str, str] = field(default_factory=dict[str, str])
    names: dict[str, str] = field(default_factory=dict[str, str])
    order: dict[str, int] = field(default_factory=dict[str, int])
    shown: dict[str, PlacedAnswer] = field(default_factory=dict[str, PlacedAnswer])
    stages: dict[tuple[str, str], tuple[str, Stage]] = field(default_factory=dict[tuple[str, str], tuple[str, Stage]])
    inputs: dict[str, tuple[InputSpec, ...]] = field(default_factory=dict[str, tuple[InputSpec, ...]])
    awaited: Counter[str] = field(default_factory=Counter[str])
    interpreter: TracingInterpreter | None = None
    focus: int | None = None
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = None
    state: FileState | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    cancelled: int = 0
    edited: float = -math.inf
    rest: float = 0.0

    def edit(self, text: str, workspace: tuple[str, ...]) -> None:
        """The text is another one. Once somebody types, that is: edits soon after each other, `rest` is how many
        seconds tracing waits for the next key."""
        now = asyncio.get_running_loop().time()
        self.rest = TYPING_SECONDS if now - self.edited < TYPING_SECONDS else 0.0
        if self.workspace != workspace:
            self.interpreter = self.read_text = None
        self.text, self.workspace, self.edited = text, workspace, now

    @property
    def reading(self) -> bool:
        """Return whether the text is being read, or will be soon."""
        return self.timer is not None or (self.task is not None and not self.task.done())

    @property
    def settled(self) -> bool:
        """Return whether everything that can be known of the present text without tracing is known."""
        if self.read_text != self.text:
            return False
        return self.failure is not None or self.trouble is not None or self.resolved is self.good

    async def when_settled(self, look: Callable[[], T | None]) -> T | Failure:
        """Return what `look` says once the present text is settled; ask it at every change until it is not None.

        Raises asyncio.CancelledError when everything was cancelled.
        """
        cancelled = self.cancelled
        while True:
            self.changed.clear()
            if self.closed:
                return Failure("unsupported", f"{self.file} was closed")
            if self.cancelled != cancelled:
                raise asyncio.CancelledError
            if self.settled and (answer := look()) is not None:
                return answer
            await self.changed.wait()

    def stop_reading(self) -> None:
        """Stop what reads the text, or would soon."""
        if self.timer is not None:
            self.timer.cancel()
        if self.task is not None:
            self.task.cancel()
        self.timer = self.task = None

    def take_keys(self, analysis: Analysis, keys: dict[str, str]) -> None:
        """The keys of `analysis` are known; forget what is shown for targets that are gone."""
        self.resolved, self.keys = analysis, keys
        quick_first = sorted(keys, key=lambda name: len(analysis.plan(name).lines))
        self.order = {name: number for number, name in enumerate(quick_first)}
        self.names = {key: name for name, key in keys.items()}
        self.shown = {entry: shown for entry, shown in self.shown.items() if split_entry(entry)[0] in keys}
        for entry in [*self.shown, *(entry for entry, count in self.awaited.items() if count)]:
            self.key_of(entry)

    def key_of(self, entry: str) -> str | None:
        """Return the key that an entry has in the present text, or None where its target is not there."""
        name, work = split_entry(entry)
        if entry not in self.keys and name in self.keys:
            key = self.keys[entry] = entry_of(self.keys[name], self._placed(name, work))
            self.names[key] = entry
            self.order[entry] = self.order[name]
        return self.keys.get(entry)

    def _placed(self, name: str, work: Work) -> Work:
        """Return `work` with its lines counted in what the target's key is about, which may stand anywhere."""
        lines_of_work = _LINES.fullmatch(work)
        if lines_of_work is None or self.resolved is None:
            return work
        lines = sorted(self.resolved.plan(name).lines)
        return "{}={}-{}".format(
            lines_of_work[1], *(bisect_left(lines, int(line)) for line in lines_of_work.group(2, 3))
        )

    def slowness(self, entry: str) -> tuple[bool, int]:
        """Return what puts a trace after others: that its last one was slow, and how much code it reaches."""
        shown = self.shown.get(entry)
        slow = shown is not None and shown.seconds is not None and shown.seconds > SLOW_SECONDS
        return slow, self.order[entry]

    def mark_old(self, name: str, key: str) -> None:
        """Note that the answer under `key` no longer holds, because something that it depends on has changed."""
        shown = self.shown.get(name)
        if shown is not None and shown.key == key:
            self.shown[name] = replace(shown, key="")

    def traced(self) -> list[Target]:
        """Return the targets whose graphs are known."""
        targets = self.good.targets.items() if self.good else ()
        return [t for name, t in targets if name in self.shown and isinstance(self.shown[name].outcome, Trace)]

    def dependencies(self) -> set[str]:
        """Return the other files that what is shown depends on."""
        return {dependency.path for shown in self.shown.values() for dependency in shown.answer.dependencies}

    def failed_imports(self) -> list[str]:
        """Keys of targets whose imports failed: a file or a package that is new by now may mend that."""
        return [
            shown.key
            for shown in self.shown.values()
            if isinstance(shown.answer.outcome, Failure) and shown.answer.outcome.kind == "import" and shown.key
        ]

    def show(self, name: str, key: str, answer: CachedTrace, seconds: float | None = None) -> None:
        """`answer` is what is known of an entry of the last good text; it took `seconds`, where it was traced now."""
        assert self.good is not None, "keys come from a good analysis"
        target, work = split_entry(name)
        lines = self.good.plan(target).lines
        moved = None if lines == answer.lines else dict(zip(answer.lines, lines, strict=False))
        outcome = answer.outcome if moved is None else relocate_outcome(answer.outcome, self.file, moved)
        before = self.shown.get(name)
        if seconds is None and before is not None and before.key == key:
            seconds = before.seconds
        self.shown[name] = PlacedAnswer(key, self.good.text, answer, outcome, moved, seconds)
        self.stages = {k: v for k, v in self.stages.items() if k[0] != key}
        if isinstance(outcome, Trace) and not variant_of(work):
            self.inputs[target] = outcome.inputs

    def current(self, name: str) -> PlacedAnswer | None:
        """Return the answer for the present text, or None while it is not known."""
        shown = self.shown.get(name)
        return shown if shown and self.settled and shown.key == self.keys.get(name) else None


def urgency(files: Iterable[OpenFile], focused: OpenFile | None, key: str, unasked: bool) -> Urgency | None:
    """Return how urgent the trace `key` is: asked for, at the cursor, in the focused file, elsewhere, a variant of a
    target or a script as a whole; quick first.

    None where nobody wants it; without `unasked`, only what is asked for is wanted.
    """
    wanted: list[Urgency] = []
    for open_file in files:
        name = open_file.names.get(key)
        if name is None or open_file.trouble is not None:
            continue
        if open_file.awaited[name]:
            wanted.append((0, *open_file.slowness(name)))
        elif unasked and variant_of(split_entry(name)[1]):
            wanted.append((4, *open_file.slowness(name)))
        elif unasked:
            target = (
                open_file.resolved.targets[split_entry(name)[0]]
                if open_file is focused and open_file.resolved
                else None
            )
            at_focus = target and open_file.focus and target.span.line <= open_file.focus <= target.span.end_line
            is_script = (
                open_file.resolved is not None and open_file.resolved.targets[split_entry(name)[0]].kind == "script"
            )
            rank = 4 if is_script else 1 if at_focus else 2 if open_file is focused else 3
            wanted.append((rank, *open_file.slowness(name)))
    return min(wanted, default=None)


def trouble_of(open_file: OpenFile) -> Failure | None:
    """Return the failure of the whole file, if there is one."""
    if open_file.failure is not None:
        return open_file.failure
    error, good = open_file.trouble, open_file.good
    if error is None:
        return None
    kind: FailureKind = "no-torch" if error.kind == "no-torch" else "interpreter"
    span = good.import_span() if good else None
    return Failure(kind, str(error), span, error.hint, output=error.output[-4096:])


def known_targets(open_file: OpenFile) -> tuple[Target, ...] | Failure:
    """Return the targets of a settled file in order, or the failure of the whole file."""
    good = open_file.good
    return trouble_of(open_file) or tuple(good.targets.values() if good else ())


def known_outcome(open_file: OpenFile, entry: str) -> tuple[Outcome, str] | None:
    """Return what a settled file knows of an entry, and the key of that ("" without one); None before a trace."""
    failure = trouble_of(open_file)
    if failure is not None:
        return failure, ""
    if open_file.key_of(entry) is None:
        name, _ = split_entry(entry)
        message = f"{open_file.file} has no function or module {name!r} that can be traced"
        return Failure("unsupported", message), ""
    shown = open_file.current(entry)
    return None if shown is None else (shown.outcome, shown.key)


def overlays(files: Iterable[OpenFile]) -> Texts:
    """Return the last good text of every open file: one that does not parse would only break those that import it."""
    by_path = {open_file.file: open_file for open_file in files}
    good = {file: open_file.good for file, open_file in by_path.items() if open_file.good is not None}
    return Texts({file: (f.good.text if f.good else f.text) for file, f in by_path.items()}, good)


def remarks_on(files: Iterable[OpenFile], file: str) -> list[Remark]:
    """Return what work with the targets of `files` says of places in `file`."""
    shown = [s.outcome for f in files for entry, s in f.shown.items() if split_entry(entry)[1]]
    outcomes = [outcome for outcome in shown if isinstance(outcome, Trace)]
    return [r for outcome in outcomes for r in outcome.remarks if r.span is not None and r.span.file == file]


def build_state(open_file: OpenFile, tracing: Container[str]) -> FileState:
    """Return what an editor may show now. `tracing` tells which keys are being traced or wait for it.

    What turned out to be no tensor code is not among the targets.
    """
    good, text = open_file.good, open_file.text
    targets: list[TargetState] = []
    if good is not None:
        keys = open_file.keys if open_file.resolved is good else {}
        mappings: dict[str, Mapping[int, int] | None] = {}
        for name, target in good.targets.items():
            shown, key = open_file.shown.get(name), keys.get(name)
            moving = open_file.failure is None and not open_file.settled
            pending = moving or (key is not None and key in tracing and not (shown and shown.key == key))
            outcome = None
            if shown is not None:
                mapping = _mapping(shown.text, text, mappings)
                outcome = _with_variants(open_file, name, shown)
                outcome = outcome if mapping is None else relocate_outcome(outcome, good.file, mapping)
            stale = shown is not None and open_file.current(name) is None
            mapping = _mapping(good.text, text, mappings)
            moved = target if mapping is None else _move_target(target, mapping, len(split_lines(text)))
            stale = stale or open_file.failure is not None
            if isinstance(outcome, Failure) and outcome.kind == "nothing":
                continue
            targets.append(TargetState(moved, outcome, pending, stale, key, shown.seconds if shown else None))
    return FileState(open_file.file, text, tuple(targets), trouble_of(open_file))


def _with_variants(open_file: OpenFile, name: str, shown: PlacedAnswer) -> Outcome:
    """Return the outcome of a target with what is known of its variants by now, at the same lines."""
    outcome = shown.outcome
    for variant in untried(outcome):
        entry = entry_of(name, variant_work(variant))
        answer = open_file.shown.get(entry)
        key = entry_of(shown.key, variant_work(variant))
        if answer is not None and (answer.key, answer.text) == (key, shown.text) and isinstance(outcome, Trace):
            outcome = with_variant_outcome(outcome, variant, answer.outcome)
    return outcome


def shown_stage(open_file: OpenFile, name: str, stage: Stage) -> Stage:
    """Return a decoded stage of the answer that is shown for `name`, at the positions of the present text."""
    shown = open_file.shown[name]
    kept = open_file.stages.get((shown.key, stage.name))
    if kept and kept[0] == open_file.text:
        return kept[1]
    for mapping in (shown.moved, _mapping(shown.text, open_file.text, {})):
        if mapping is not None:
            stage = relocate_stage(stage, open_file.file, mapping)
    open_file.stages = {k: v for k, v in open_file.stages.items() if v[0] == open_file.text}
    open_file.stages[shown.key, stage.name] = open_file.text, stage
    return stage


def _mapping(old: str, new: str, mappings: dict[str, Mapping[int, int] | None]) -> Mapping[int, int] | None:
    if old not in mappings:
        mappings[old] = None if old == new else edited_lines(split_lines(old), split_lines(new))
    return mappings[old]


def _move_target(target: Target, mapping: Mapping[int, int], lines: int) -> Target:
    name_span = relocate_span(target.name_span, target.file, mapping)
    if name_span is None:
        line = min(target.name_span.line, lines)
        name_span = replace(target.name_span, line=line, end_line=line)
    start = mapping.get(target.span.line, min(target.span.line, name_span.line))
    end = mapping.get(target.span.end_line, min(max(target.span.end_line, name_span.line), lines))
    return replace(target, name_span=name_span, span=replace(target.span, line=start, end_line=max(start, end)))
