"""Keeps the graphs of every open file fresh: reads texts, looks answers up, traces what is missing, most urgent first.

Everything runs on one asyncio loop; nothing here blocks it and nothing here imports torch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from fx_lsp.errors import WorkerStartError
from fx_lsp.model import Failure, Outcome, Pass, Remark, Stage, Target, TraceReply, Work, known_trace, variant_work
from fx_lsp.tracing.analysis import Analysis, Plan, analyse, aside
from fx_lsp.tracing.answers.disk import UNKNOWN, Cache, CachedTrace, Dependency, is_fresh
from fx_lsp.tracing.answers.store import Answers
from fx_lsp.tracing.answers.variants import untried
from fx_lsp.tracing.background_tasks import Background
from fx_lsp.tracing.open_file import (
    FileState,
    OpenFile,
    TargetState,
    build_state,
    entry_of,
    known_outcome,
    known_targets,
    overlays,
    remarks_on,
    shown_stage,
    split_entry,
    urgency,
)
from fx_lsp.tracing.scheduler import Job, Scheduler, Urgency
from fx_lsp.tracing.source.project import concerns
from fx_lsp.tracing.status import EngineStatus, Reporter, summarize
from fx_lsp.tracing.trace_request import ask
from fx_lsp.tracing.workers.failures import our_fault
from fx_lsp.tracing.workers.interpreter import Backend, TracingInterpreters, default_backend
from fx_lsp.tracing.workers.settings import EngineSettings

__all__ = ["Engine", "EngineSettings", "EngineStatus", "FileState", "TargetState"]

_DEBOUNCE = 0.005

log = logging.getLogger(__name__)


class Engine:
    """Open files and their traces. Use it from within one running asyncio loop.

    `on_update(file)` is called when something that an editor shows has changed, several changes at once;
    `on_status` whenever the status differs.
    """

    def __init__(
        self,
        settings: EngineSettings,
        on_update: Callable[[str], None],
        on_status: Callable[[EngineStatus], None],
        backend: Backend | None = None,
    ) -> None:
        self._settings = settings
        self._reporter = Reporter(on_update, on_status, self._current_status)
        self._files: dict[str, OpenFile] = {}
        self._interpreters = TracingInterpreters(backend or default_backend(), self._reporter.status_changed)
        self._answers = Answers(Cache(settings.cache_path))
        self._scheduler = self._new_scheduler()
        self._background = Background(self._reporter.status_changed)
        self._focused: OpenFile | None = None
        self._closed = False

    def open(self, file: str, text: str, roots: tuple[str, ...]) -> None:
        """Note that a file was opened or its text changed. Returns at once."""
        open_file = self._files.get(file)
        if self._closed or (open_file and open_file.text == text and open_file.workspace == roots):
            return
        if open_file is None:
            open_file = self._files[file] = OpenFile(file, text, roots)
            self._focused = self._focused or open_file
        open_file.edit(text, roots)
        self._read_soon(open_file, _DEBOUNCE if open_file.good or open_file.failure else 0)
        self._touch(open_file)

    def close(self, file: str) -> None:
        """Close a file: what only it needed is no longer traced, and the disk's text counts again."""
        closed = self._files.pop(file, None)
        if closed is None:
            return
        closed.closed = True
        closed.stop_reading()
        self._focused = None if self._focused is closed else self._focused
        closed.changed.set()
        self._scheduler.refresh()
        self._refresh_dependents(file)

    def focus(self, file: str, line: int) -> None:
        """Trace what stands at `line` (from 1) first."""
        focused = self._files.get(file)
        if focused is not None and (self._focused is not focused or focused.focus != line):
            self._focused, focused.focus = focused, line
            self._scheduler.refresh()

    def changed_on_disk(self, files: Collection[str]) -> None:
        """Trace anew what depends on files that something else wrote, and try failed imports again."""
        for open_file in self._files.values():
            if (
                open_file.failed_imports()
                or concerns(files, open_file.file)
                or not open_file.dependencies().isdisjoint(files)
            ):
                self._look_again(open_file)

    def saved(self, file: str) -> None:
        """Look whether what a saved file depends on has changed on disk, and try failed imports again."""
        if (open_file := self._files.get(file)) is not None:
            self._look_again(open_file)

    def state(self, file: str) -> FileState | None:
        """Return what is known now, or None for a file that is not open. Never waits."""
        open_file = self._files.get(file)
        if open_file is not None and open_file.state is None:
            open_file.state = build_state(open_file, self._scheduler)
        return None if open_file is None else open_file.state

    @property
    def busy(self) -> bool:
        """Return whether something is being read or traced."""
        return any(f.reading for f in self._files.values()) or not self._scheduler.idle

    async def targets(self, file: str) -> tuple[Target, ...] | Failure:
        """Return what can be traced in a file's present text, in order; wait until it is read, and trace nothing.

        A `Failure` where the whole file has one, as in `FileState.syntax`.
        """
        open_file = self._files.get(file)
        return _not_open(file) if open_file is None else await open_file.when_settled(lambda: known_targets(open_file))

    async def outcome(self, file: str, name: str, work: Work = "", final: bool = False) -> Outcome:
        """Return what tracing the present text of a target gives, and doing `work` with it.

        Wait for it, through edits made meanwhile, and with `final` for all that there is to know of it.

        Raises asyncio.CancelledError when everything was cancelled.
        """
        return (await self._answer(file, entry_of(name, work), final))[0]

    async def stage(self, file: str, name: str, stage: str, work: Work = "") -> Stage | Failure:
        """One stage of a target's present text, also of what ran of one that fails; waits for it. A `Failure` where
        there is none.

        That of a pass that changed nothing is the stage before it.
        """
        entry = entry_of(name, work)
        for _ in range(2):
            outcome, key = await self._answer(file, entry)
            trace = known_trace(outcome)
            kept = None if trace is None else trace.kept(stage)
            if isinstance(outcome, Failure) and kept is None:
                return outcome
            if trace is None or kept is None:
                there = ", ".join(info.name for info in trace.stages) if trace is not None else ""
                return Failure("unsupported", f"{name} has no stage {stage!r}; it has: {there or 'none'}")
            open_file = self._files.get(file)
            decoded = await self._answers.stage(key, kept)
            if decoded is not None and open_file is not None:
                shown = open_file.shown.get(entry)
                return shown_stage(open_file, entry, decoded) if shown and shown.key == key else decoded
            self._answers.forget(key)
            if open_file is not None:
                open_file.shown.pop(entry, None)
                self._schedule(open_file, entry, key)
        return Failure("unsupported", f"the stage {stage!r} of {name} could not be kept")

    def known(self, file: str, name: str, work: Work) -> Outcome | None:
        """Return what is known of `work` with the present text of a target, without waiting."""
        shown = self._files[file].current(entry_of(name, work)) if file in self._files else None
        return shown.outcome if shown else None

    def forget(self, file: str, name: str, work: Work) -> None:
        """Nobody looks at `work` with a target any more: what it says of places in the code is said no longer."""
        if file in self._files and self._files[file].shown.pop(entry_of(name, work), None):
            self._touch(self._files[file])

    def dependencies(self, file: str, name: str, work: Work) -> tuple[Dependency, ...]:
        """Return the other files that what is known of `work` with a target depends on."""
        shown = self._files[file].shown.get(entry_of(name, work)) if file in self._files else None
        return shown.answer.dependencies if shown else ()

    def recent(self, file: str) -> list[Target]:
        """Return what a pass in `file` can be run on: traced targets of that file, then of the others."""
        own_first = sorted(self._files.values(), key=lambda f: f.file != file)
        return [target for open_file in own_first for target in open_file.traced()]

    def passes(self, file: str) -> tuple[Pass, ...]:
        """Return the passes in the last good text of a file."""
        return open_file.good.passes if (open_file := self._files.get(file)) and open_file.good else ()

    def plan(self, file: str, name: str) -> Plan | None:
        """Return how a target in the last good text of a file is traced."""
        good = self._files[file].good if file in self._files else None
        return good.plan(name) if good and name in good.targets else None

    def remarks(self, file: str) -> list[Remark]:
        """Return what work with targets of all open files says of places in `file`."""
        return remarks_on(self._files.values(), file)

    def stage_now(self, file: str, name: str, stage: str, work: Work = "") -> Stage | None:
        """Return the stage of what `state` shows, or of what is known of `work`, if it is at hand without waiting."""
        open_file, entry = self._files.get(file), entry_of(name, work)
        shown = open_file.shown.get(entry) if open_file else None
        if open_file is None or shown is None:
            return None
        decoded = self._answers.stage_now(shown.key, stage)
        return shown_stage(open_file, entry, decoded) if decoded is not None else None

    def cancel_all(self) -> None:
        """Stop every trace. What was cancelled is traced again after an edit, or when it is asked for."""
        for open_file in self._files.values():
            open_file.cancelled += 1
            open_file.changed.set()
        self._scheduler.stop()
        for open_file in self._files.values():
            self._touch(open_file)

    async def restart(self) -> None:
        """End the tracers, forget what may have been bad luck, and trace anew."""
        await self._scheduler.cancel()
        await self._interpreters.close()
        self._answers.close()
        self._answers = Answers(Cache(self._settings.cache_path))
        for open_file in self._files.values():
            open_file.interpreter = open_file.trouble = open_file.resolved = None
            open_file.shown.clear()
            self._read_soon(open_file, 0)
            self._touch(open_file)

    async def configure(self, settings: EngineSettings) -> None:
        """Take other settings; tracers are restarted where they differ."""
        if settings == self._settings:
            return
        previous, self._settings = self._settings, settings
        if previous.workers != settings.workers:
            await self._scheduler.close()
            self._scheduler = self._new_scheduler()
        await self.restart()

    async def shutdown(self) -> None:
        """End every process and task; the engine takes no more files."""
        self._closed = True
        for open_file in self._files.values():
            open_file.closed = True
            open_file.stop_reading()
            open_file.changed.set()
        self._reporter.close()
        await self._scheduler.close()
        await self._interpreters.close()
        await self._background.wait()
        self._answers.close()

    def _read_soon(self, open_file: OpenFile, delay: float) -> None:
        open_file.stop_reading()
        open_file.timer = asyncio.get_running_loop().call_later(delay, self._start_reading, open_file)

    def _look_again(self, open_file: OpenFile) -> None:
        for key in open_file.failed_imports():
            self._answers.forget(key)
        self._read_soon(open_file, _DEBOUNCE)

    def _start_reading(self, open_file: OpenFile) -> None:
        open_file.timer = None
        open_file.task = self._background.run(self._read(open_file))

    async def _read(self, open_file: OpenFile) -> None:
        text = open_file.text
        try:
            if open_file.read_text != text or (open_file.good is not None and open_file.good.project_changed()):
                analysis = await aside(text, lambda: analyse(open_file.file, text, open_file.workspace))
                open_file.read_text, open_file.failure = text, analysis.failure
                if analysis.failure is None:
                    open_file.good = analysis
                    self._refresh_dependents(open_file.file, open_file.rest)
                self._touch(open_file)
            if open_file.good is not None and open_file.failure is None:
                await self._resolve(open_file, open_file.good)
        except Exception as error:
            log.exception("reading %s failed inside fx-lsp", open_file.file)
            open_file.read_text = text
            open_file.failure = our_fault(f"fx-lsp failed to read {open_file.file}", error, None)
            self._touch(open_file)

    async def _resolve(self, open_file: OpenFile, analysis: Analysis) -> None:
        """Find the keys of the targets, show what is known of them, and have the rest traced."""
        try:
            interpreter = open_file.interpreter = open_file.interpreter or self._interpreters.find(
                self._settings, open_file.workspace
            )
            identity = await interpreter.identity()
        except WorkerStartError as error:
            self._give_up(open_file, error)
            return
        seconds = self._settings.search_seconds
        keys = await aside(open_file.text, lambda: {n: analysis.key(n, identity, seconds) for n in analysis.targets})
        open_file.take_keys(analysis, keys)
        entries = dict(open_file.keys)
        answers = await self._answers.find(entries.values(), overlays(self._files.values()))
        open_file.trouble = None if interpreter.error is None else open_file.trouble
        wanted: list[str] = []
        for entry, key in entries.items():
            if key in answers:
                open_file.show(entry, key, answers[key])
                continue
            open_file.mark_old(entry, key)
            if open_file.awaited[entry] or (self._settings.trace_on_open and entry in analysis.targets):
                wanted.append(entry)
        self._scheduler.refresh()
        self._touch(open_file)
        if not any(open_file.awaited[entry] for entry in wanted):
            await asyncio.sleep(open_file.rest)  # the next key cancels this
        for entry in sorted(wanted, key=open_file.slowness):
            self._schedule(open_file, entry, entries[entry])
        for name in analysis.targets:
            self._trace_variants(open_file, name)
        self._touch(open_file)

    def _schedule(self, open_file: OpenFile, entry: str, key: str) -> None:
        if open_file.interpreter is not None:
            title = " ".join(part for part in split_entry(entry) if part)
            self._scheduler.add(Job(key, open_file.interpreter, title, lambda: self._trace(open_file, entry, key)))

    def _trace_variants(self, open_file: OpenFile, name: str) -> None:
        """Trace the variants of a target that it had no time for itself, once nothing more urgent is to be done."""
        shown = open_file.current(name)
        for variant in untried(shown.outcome) if shown is not None and self._settings.trace_on_open else ():
            entry = entry_of(name, variant_work(variant))
            key = open_file.key_of(entry)
            if key is not None and open_file.current(entry) is None:
                self._schedule(open_file, entry, key)

    async def _trace(self, open_file: OpenFile, entry: str, key: str) -> None:
        analysis, interpreter = open_file.good, open_file.interpreter
        if analysis is None or interpreter is None or open_file.keys.get(entry) != key:
            return
        name, work = split_entry(entry)
        plan, texts, answers = analysis.plan(name), overlays(self._files.values()), self._answers
        if work and (stored := await answers.find([key], texts)):
            open_file.show(entry, key, stored[key])
            self._touch(open_file)
            return
        previous, search_seconds = open_file.inputs.get(name, ()), self._settings.search_seconds

        def show_early(reply: TraceReply) -> None:
            if not open_file.closed and open_file.keys.get(entry) == key:
                answer = CachedTrace(reply.outcome, plan.lines, (), reply.packages, final=False)
                answers.keep(key, answer, reply.stages)
                self._background.run(answers.decode(key, list(reply.stages)))
                open_file.show(entry, key, answer)
                self._touch(open_file)

        try:
            asked = await ask(interpreter, analysis, name, work, texts, previous, search_seconds, show_early)
        except WorkerStartError as error:
            for other in self._files.values():
                if other.interpreter is interpreter:
                    self._give_up(other, error)
            return
        reply, dependencies = asked.reply, asked.dependencies
        answer = CachedTrace(reply.outcome, plan.lines, dependencies, reply.packages)
        answers.keep(key, answer, reply.stages)
        self._background.run(answers.decode(key, list(reply.stages)))
        if asked.repeats:
            self._background.run(answers.store(key, reply, plan.lines, dependencies))
        if not open_file.closed and open_file.keys.get(entry) == key:
            open_file.show(entry, key, answer, asked.seconds)
            changing = [d for d in dependencies if d.path in self._files or d.digest == UNKNOWN]
            if not is_fresh(changing, overlays(self._files.values())):
                self._read_soon(open_file, 0)
            self._trace_variants(open_file, entry)
            self._touch(open_file)

    async def _answer(self, file: str, entry: str, final: bool = False) -> tuple[Outcome, str]:
        open_file = self._files.get(file)
        if open_file is None:
            return _not_open(file), ""

        def known() -> tuple[Outcome, str] | None:
            answer = known_outcome(open_file, entry)
            shown = open_file.current(entry) if final else None
            if answer is None or (shown is not None and not shown.answer.final):
                answer = None
                self._schedule(open_file, entry, open_file.keys[entry])
                self._scheduler.refresh()
            return answer

        open_file.awaited[entry] += 1
        try:
            answer = await open_file.when_settled(known)
            return (answer, "") if isinstance(answer, Failure) else answer
        finally:
            open_file.awaited[entry] -= 1
            if not self._closed:
                self._scheduler.refresh()

    def _give_up(self, open_file: OpenFile, error: WorkerStartError) -> None:
        open_file.trouble = error
        self._scheduler.refresh()
        self._touch(open_file)

    def _refresh_dependents(self, file: str, rest: float = 0.0) -> None:
        for other in self._files.values():
            if other.file != file and file in other.dependencies():
                other.rest = rest
                self._read_soon(other, 0)

    def _new_scheduler(self) -> Scheduler:
        def urgency_of(key: str) -> Urgency | None:
            return urgency(self._files.values(), self._focused, key, self._settings.trace_on_open)

        return Scheduler(self._settings.workers, urgency_of, self._reporter.status_changed)

    def _touch(self, open_file: OpenFile) -> None:
        open_file.state = None
        open_file.changed.set()
        self._reporter.file_changed(open_file.file)

    def _current_status(self) -> EngineStatus:
        interpreters, troubles = self._interpreters.all, [f.trouble for f in self._files.values() if f.trouble]
        wrong = next((f.good.trouble for f in self._files.values() if f.good and f.good.trouble), "")
        return summarize(interpreters, troubles, self._scheduler.message, self._answers.trouble or wrong, not self.busy)


def _not_open(file: str) -> Failure:
    return Failure("unsupported", f"{file} is not open")
