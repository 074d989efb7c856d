"""Keep the graphs of every open file current: read texts, look answers up, trace the missing ones, the most urgent
first.

Everything runs on one asyncio loop; nothing here blocks it and nothing here imports torch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from fx_lsp.errors import WorkerStartError
from fx_lsp.messages.requests import CLOSED, NO_SUCH_STAGE, NOT_OPEN, UNSTORED_STAGE
from fx_lsp.model import Failure, Outcome, Pass, Remark, Stage, Target, TraceReply, Work, folder_listed, known_trace
from fx_lsp.tracing.analysis import Analysis, Plan, analyse, aside
from fx_lsp.tracing.answers.disk import UNKNOWN, Cache, CachedTrace, Dependency, is_fresh
from fx_lsp.tracing.answers.placed import PlacedAnswers
from fx_lsp.tracing.answers.question import TargetQuestion
from fx_lsp.tracing.answers.store import Answers
from fx_lsp.tracing.answers.variants import untried
from fx_lsp.tracing.background_tasks import Background
from fx_lsp.tracing.open_file import (
    FileState,
    Focus,
    OpenFile,
    StoredState,
    TargetState,
    TextKeys,
    build_state,
    known_outcome,
    known_targets,
    unsaved_texts,
    urgency,
)
from fx_lsp.tracing.scheduler import Job, Scheduler, Urgency
from fx_lsp.tracing.source.project import concerns
from fx_lsp.tracing.source.targets import stages_like
from fx_lsp.tracing.status import EngineStatus, Reporter, summarize
from fx_lsp.tracing.trace_request import Inquiry, ask
from fx_lsp.tracing.workers.failures import internal_error
from fx_lsp.tracing.workers.interpreter import Backend, TracingInterpreter, TracingInterpreters, default_backend
from fx_lsp.tracing.workers.settings import EngineSettings

__all__ = ["Engine", "EngineSettings", "EngineStatus", "FileState", "TargetState"]

T = TypeVar("T")
_DEBOUNCE = 0.005

log = logging.getLogger(__name__)


class Engine:
    """Trace open files. Use it from within one running asyncio loop.

    `on_update(file)` is called when displayed results have changed, once for several changes; `on_status` is called
    whenever the status changes.
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
        self._focus: Focus | None = None
        self._changed_meanwhile: set[str] = set()
        self._stored: dict[str, StoredState] = {}
        self._closed = False

    def open(self, file: str, text: str, roots: tuple[str, ...]) -> None:
        """Record that a file was opened or its text changed. Returns at once."""
        open_file = self._files.get(file)
        if self._closed or (open_file and open_file.text == text and open_file.workspace == roots):
            return
        if open_file is None:
            open_file = self._files[file] = OpenFile(file, text, roots, PlacedAnswers(file))
            self._focus = self._focus or Focus(file)
        self._used(open_file)
        open_file.edit(text, roots)
        self._read_soon(open_file, _DEBOUNCE if open_file.good or open_file.broken else 0)
        self._touch(open_file)

    def close(self, file: str) -> None:
        """Close a file: targets that only it needed are no longer traced, and its text on disk applies again."""
        closed = self._files.pop(file, None)
        self._stored.pop(file, None)
        if closed is None:
            return
        closed.reading.stop()
        self._focus = None if self._focus and self._focus.file == file else self._focus
        closed.requests.look_again()
        self._scheduler.refresh()
        self._release()
        self._refresh_dependents(file)

    def focus(self, file: str, line: int) -> None:
        """Trace the target at `line` (from 1) first."""
        if file in self._files and self._focus != Focus(file, line):
            self._focus = Focus(file, line)
            self._used(self._files[file])
            self._scheduler.refresh()

    def changed_on_disk(self, files: Collection[str]) -> None:
        """Trace again the targets that depend on files written by other programs, and retry failed imports.

        If nobody uses the editor and the tracers have ended, that waits until somebody does.
        """
        if any(interpreter.resting for interpreter in self._interpreters.all):
            self._changed_meanwhile.update(files)
            return
        changed = {*files, *(folder_listed(str(Path(file).parent)) for file in files)}
        for open_file in self._files.values():
            if (
                open_file.answers.failed_imports()
                or concerns(files, open_file.file)
                or not open_file.answers.dependencies().isdisjoint(changed)
            ):
                self._look_again(open_file)

    def saved(self, file: str) -> None:
        """Check whether dependencies of a saved file have changed on disk, and retry failed imports."""
        if (open_file := self._files.get(file)) is not None:
            self._look_again(open_file)

    def state(self, file: str) -> FileState | None:
        """Return the current state, or None for a file that is not open. Never waits."""
        open_file = self._files.get(file)
        if open_file is not None and open_file.state is None:
            open_file.state = build_state(open_file, self._scheduler.coming)
        return None if open_file is None else open_file.state

    async def stored(self, file: str, text: str, roots: tuple[str, ...]) -> FileState | None:
        """Return the state of a file that is not open, from stored answers that are still valid; None if no open file
        has the same roots. Traces nothing, and starts no interpreter.
        """
        same = (f.interpreter for f in self._files.values() if f.workspace == roots and self._settings.may_run(file))
        interpreter = next((each for each in same if isinstance(each, TracingInterpreter) and not each.error), None)
        if interpreter is None:
            return None
        stored, texts = self._stored.get(file), unsaved_texts(self._files.values())
        if stored is None or stored.text != text or not await asyncio.to_thread(is_fresh, stored.dependencies, texts):
            analysis = await aside(text, lambda: analyse(file, text, roots))
            closed = OpenFile(file, text, roots, PlacedAnswers(file), read=(text, analysis.failure), good=analysis)
            _, answers = await self._show_stored(closed, analysis, await interpreter.identity())
            dependencies = tuple(d for answer in answers.values() for d in answer.dependencies)
            state = None if analysis.failure is not None else build_state(closed, ())
            stored = self._stored[file] = StoredState(text, state, dependencies)
        return stored.state

    @property
    def busy(self) -> bool:
        """Return True if a text is being read or traced."""
        return any(f.reading.busy for f in self._files.values()) or not self._scheduler.idle

    async def targets(self, file: str) -> tuple[Target, ...] | Failure:
        """Return the targets in a file's current text, in order. Waits until it is parsed, and traces nothing.

        Returns the `Failure` of the whole file, if it has one, as in `FileState.syntax`.
        """
        open_file = self._files.get(file)
        if open_file is None:
            return _not_open(file)
        return await self._when_settled(open_file, lambda: known_targets(open_file))

    async def outcome(self, file: str, name: str, work: Work = "", final: bool = False) -> Outcome:
        """Return the outcome of tracing the current text of a target, or of doing `work` with it.

        Waits for it, through edits made meanwhile, and with `final` for the complete answer.

        Raises asyncio.CancelledError if all traces are cancelled.
        """
        return (await self._answer(file, TargetQuestion(name, work), final))[0]

    async def stage(self, file: str, name: str, stage: str, work: Work = "") -> Stage | Failure:
        """Return one stage of a target's current text, also of the partial run of a failing one; waits for it. Returns
        a `Failure` without such a stage.

        The stage of a pass that changed nothing is the stage before it.
        """
        question = TargetQuestion(name, work)
        for _ in range(2):
            outcome, key = await self._answer(file, question)
            trace = known_trace(outcome)
            kept = None if trace is None else trace.kept(stage)
            if isinstance(outcome, Failure) and kept is None:
                return outcome
            if trace is None or kept is None:
                there = [info.name for info in trace.stages] if trace is not None else []
                return NO_SUCH_STAGE.failure(hint=stages_like(stage, there), name=name, stage=stage)
            open_file = self._files.get(file)
            decoded = await self._answers.stage(key, kept)
            if decoded is not None and open_file is not None:
                answer = open_file.answers.get(question)
                is_shown = answer is not None and answer.key == key
                return await open_file.answers.stage(question, decoded, open_file.text) if is_shown else decoded
            self._answers.forget(key)
            if open_file is not None:
                open_file.answers.drop(question)
                self._schedule(open_file, question, key)
        return UNSTORED_STAGE.failure(name=name, stage=stage)

    def known(self, file: str, name: str, work: Work) -> Outcome | None:
        """Return the outcome of `work` with the current text of a target, or None. Never waits."""
        answer = self._files[file].current(TargetQuestion(name, work)) if file in self._files else None
        return answer.outcome if answer else None

    def forget(self, file: str, name: str, work: Work) -> None:
        """Drop the result of `work` with a target, including its remarks on the code."""
        if file in self._files and self._files[file].answers.drop(TargetQuestion(name, work)):
            self._touch(self._files[file])

    def dependencies(self, file: str, name: str, work: Work) -> tuple[Dependency, ...]:
        """Return the other files that the result of `work` with a target depends on."""
        answer = self._files[file].answers.get(TargetQuestion(name, work)) if file in self._files else None
        return answer.answer.dependencies if answer else ()

    def all_dependencies(self) -> set[str]:
        """Return everything that the answers on the open files depend on, as in `TraceReply`."""
        return {path for open_file in self._files.values() for path in open_file.answers.dependencies()}

    def recent(self, file: str) -> list[Target]:
        """Return the targets that a pass in `file` can run on: traced targets of that file, then of the others."""
        own_first = sorted(self._files.values(), key=lambda f: f.file != file)
        return [target for open_file in own_first for target in open_file.traced()]

    def passes(self, file: str) -> tuple[Pass, ...]:
        """Return the passes in the last good text of a file."""
        return open_file.good.passes if (open_file := self._files.get(file)) and open_file.good else ()

    def plan(self, file: str, name: str) -> Plan | None:
        """Return the plan to trace a target in the last good text of a file, or None."""
        good = self._files[file].good if file in self._files else None
        return good.plan(name) if good and name in good.targets else None

    def remarks(self, file: str) -> list[Remark]:
        """Return the remarks in `file` from work with targets of all open files."""
        return [remark for open_file in self._files.values() for remark in open_file.answers.remarks(file)]

    def stage_now(self, file: str, name: str, stage: str, work: Work = "") -> Stage | None:
        """Return a stage of the answer that `state` shows, or of the answer to `work`, if it is available without
        waiting.
        """
        open_file, question = self._files.get(file), TargetQuestion(name, work)
        answer = open_file.answers.get(question) if open_file else None
        if open_file is None or answer is None:
            return None
        decoded = self._answers.stage_now(answer.key, stage)
        return open_file.answers.stage_now(question, decoded, open_file.text) if decoded is not None else None

    def cancel_all(self) -> None:
        """Stop every trace. A cancelled target is traced again after an edit, or on request."""
        for open_file in self._files.values():
            open_file.requests.cancel()
        self._scheduler.stop()
        for open_file in self._files.values():
            self._touch(open_file)

    async def restart(self) -> None:
        """End the tracers, drop answers that may have failed by chance, and trace again."""
        await self._scheduler.cancel()
        await self._interpreters.close()
        self._answers.close()
        self._answers = Answers(Cache(self._settings.cache_path))
        for open_file in self._files.values():
            open_file.interpreter = open_file.keys = None
            self._stored.clear()
            open_file.answers.clear()
            self._read_soon(open_file, 0)
            self._touch(open_file)

    async def configure(self, settings: EngineSettings) -> None:
        """Apply new settings; tracers are restarted if they differ."""
        if settings == self._settings:
            return
        previous, self._settings = self._settings, settings
        if previous.workers != settings.workers:
            await self._scheduler.close()
            self._scheduler = self._new_scheduler()
        await self.restart()

    async def shutdown(self) -> None:
        """End every process and task; the engine accepts no more files."""
        self._closed = True
        for open_file in self._files.values():
            open_file.reading.stop()
            open_file.requests.look_again()
        self._reporter.close()
        await self._scheduler.close()
        await self._interpreters.close()
        await self._background.wait()
        self._answers.close()

    def _used(self, open_file: OpenFile) -> None:
        """Record that somebody uses a file: its tracers start, if they have ended meanwhile."""
        if isinstance(open_file.interpreter, TracingInterpreter):
            open_file.interpreter.touch()
        if self._changed_meanwhile:
            files, self._changed_meanwhile = self._changed_meanwhile, set()
            self.changed_on_disk(files)

    def _read_soon(self, open_file: OpenFile, delay: float) -> None:
        open_file.reading.start(delay, lambda: self._background.run(self._read(open_file)))

    def _look_again(self, open_file: OpenFile) -> None:
        for key in open_file.answers.failed_imports():
            self._answers.forget(key)
        self._read_soon(open_file, _DEBOUNCE)

    async def _read(self, open_file: OpenFile) -> None:
        text = open_file.text
        try:
            if not open_file.is_read or (open_file.good is not None and open_file.good.project_changed()):
                analysis = await aside(text, lambda: analyse(open_file.file, text, open_file.workspace))
                open_file.read = text, analysis.failure
                if analysis.failure is None:
                    open_file.good = analysis
                    self._refresh_dependents(open_file.file, open_file.rest)
                self._touch(open_file)
            if open_file.good is not None and open_file.broken is None:
                await self._resolve(open_file, open_file.good)
        except Exception as error:
            log.exception("reading %s failed inside fx-lsp", open_file.file)
            open_file.read = text, internal_error(open_file.file, error, None)
            self._touch(open_file)

    async def _resolve(self, open_file: OpenFile, analysis: Analysis) -> None:
        """Compute the keys of the targets, show the stored answers, and trace the rest. Without targets, no interpreter
        is needed.
        """
        if not analysis.targets:
            open_file.interpreter = None
            open_file.take_keys(TextKeys(analysis, {}))
            self._scheduler.refresh()
            self._touch(open_file)
            return
        try:
            if not self._settings.may_run(open_file.file):
                open_file.interpreter = None
            if not isinstance(open_file.interpreter, TracingInterpreter):
                settings, workspace = self._settings, open_file.workspace
                open_file.interpreter = await self._interpreters.find(settings, open_file.file, workspace)
            identity = await open_file.interpreter.identity()
        except WorkerStartError as error:
            open_file.interpreter = open_file.interpreter or error
            self._give_up(open_file)
            return
        questions, answers = await self._show_stored(open_file, analysis, identity)
        wanted: list[TargetQuestion] = []
        for question, key in questions.items():
            if key in answers:
                continue
            open_file.answers.mark_old(question, key)
            if question in open_file.requests or (self._settings.trace_on_open and not question.work):
                wanted.append(question)
        self._scheduler.refresh()
        self._touch(open_file)
        if not any(question in open_file.requests for question in wanted):
            await asyncio.sleep(open_file.rest)  # the next key cancels this
        for question in sorted(wanted, key=open_file.slowness):
            self._schedule(open_file, question, questions[question])
        for name in analysis.targets:
            self._trace_variants(open_file, name)
        self._release()
        self._touch(open_file)

    async def _show_stored(
        self, open_file: OpenFile, analysis: Analysis, identity: str
    ) -> tuple[dict[TargetQuestion, str], dict[str, CachedTrace]]:
        """Show the stored answers on a text; return its questions with their keys, and these answers by key."""
        seconds = self._settings.search_seconds
        keys = await aside(open_file.text, lambda: {n: analysis.key(n, identity, seconds) for n in analysis.targets})
        text_keys = TextKeys(analysis, keys)
        asked = open_file.keys_of_questions(text_keys).values()
        answers = await self._answers.find(asked, unsaved_texts(self._files.values()))
        questions = open_file.take_keys(text_keys)  # from now on, answers with these keys count
        for question, key in questions.items():
            if key in answers:
                open_file.show(question, key, answers[key])
        return questions, answers

    def _release(self) -> None:
        """Free the memory of answers that no open file has."""
        self._answers.release({key for open_file in self._files.values() for key in open_file.answers.current_keys()})

    def _schedule(self, open_file: OpenFile, question: TargetQuestion, key: str) -> None:
        if isinstance(interpreter := open_file.interpreter, TracingInterpreter):
            job = Job(key, interpreter, str(question), lambda: self._trace(open_file, question, key, interpreter))
            self._scheduler.add(job)

    def _trace_variants(self, open_file: OpenFile, name: str) -> None:
        """Trace the variants for which a target's own trace had no time, once nothing more urgent is left."""
        answer = open_file.current(TargetQuestion(name))
        for variant in untried(answer.outcome) if answer is not None and self._settings.trace_on_open else ():
            question = TargetQuestion(name).of_variant(variant)
            key = open_file.key_of(question)
            if key is not None and open_file.current(question) is None:
                self._schedule(open_file, question, key)

    async def _trace(
        self, open_file: OpenFile, question: TargetQuestion, key: str, interpreter: TracingInterpreter
    ) -> None:
        if (keys := open_file.keys) is None or keys[question] != key:
            return
        name, analysis = question.target, keys.analysis
        plan, texts, answers = analysis.plan(name), unsaved_texts(self._files.values()), self._answers
        if question.work and (stored := await answers.find([key], texts)):
            open_file.show(question, key, stored[key])
            self._touch(open_file)
            return
        previous = open_file.answers.inputs.get(name, ())
        inquiry = Inquiry(analysis, question, texts, previous, self._settings.search_seconds)

        def show_early(reply: TraceReply) -> None:
            if self._is_open(open_file) and open_file.key_of(question) == key:
                answer = CachedTrace(reply.outcome, plan.lines, (), reply.packages, final=False)
                answers.keep(key, answer, reply.stages)
                self._background.run(answers.decode(key, list(reply.stages)))
                open_file.show(question, key, answer)
                self._touch(open_file)

        try:
            asked = await ask(interpreter, inquiry, show_early)
        except WorkerStartError:
            for other in self._files.values():
                if other.interpreter is interpreter:
                    self._give_up(other)
            return
        reply, dependencies = asked.reply, asked.dependencies
        answer = CachedTrace(reply.outcome, plan.lines, dependencies, reply.packages)
        answers.keep(key, answer, reply.stages)
        self._background.run(answers.decode(key, list(reply.stages)))
        if asked.repeats:
            self._background.run(answers.store(key, reply, plan.lines, dependencies))
        if self._is_open(open_file) and open_file.key_of(question) == key:
            before = open_file.answers.changing(question)
            open_file.show(question, key, answer, asked.seconds)
            changing = [
                d for d in dependencies if d.path in self._files or (d.digest == UNKNOWN and d.path not in before)
            ]
            if not is_fresh(changing, unsaved_texts(self._files.values())):
                self._read_soon(open_file, 0)
            self._trace_variants(open_file, question.target)
            self._touch(open_file)

    async def _answer(self, file: str, question: TargetQuestion, final: bool = False) -> tuple[Outcome, str]:
        open_file = self._files.get(file)
        if open_file is None:
            return _not_open(file), ""
        await self._check_fresh(open_file, question)

        def known() -> tuple[Outcome, str] | None:
            outcome, key = known_outcome(open_file, question), open_file.key_of(question)
            answer = open_file.current(question) if final else None
            if key is not None and (outcome is None or (answer is not None and not answer.answer.final)):
                self._schedule(open_file, question, key)
                self._scheduler.refresh()
                return None
            return outcome

        try:
            outcome = await self._when_settled(open_file, known, question)
            return (outcome, "") if isinstance(outcome, Failure) else outcome
        finally:
            if not self._closed:
                self._scheduler.refresh()

    async def _check_fresh(self, open_file: OpenFile, question: TargetQuestion) -> None:
        """Drop a known answer if something that it depends on has changed, of which no client has told."""
        answer, texts = open_file.current(question), unsaved_texts(self._files.values())
        if answer is not None and not await asyncio.to_thread(is_fresh, answer.answer.dependencies, texts):
            open_file.answers.mark_old(question, answer.key)
            self._look_again(open_file)

    async def _when_settled(
        self, open_file: OpenFile, look: Callable[[], T | None], *questions: TargetQuestion
    ) -> T | Failure:
        """Return the result of `look` once the current text is settled; call it at every change until it is
        not None.
        """

        def settled() -> T | Failure | None:
            if not self._is_open(open_file):
                return CLOSED.failure(file=open_file.file)
            return look() if open_file.settled else None

        return await open_file.requests.wait(settled, *questions)

    def _is_open(self, open_file: OpenFile) -> bool:
        return not self._closed and self._files.get(open_file.file) is open_file

    def _give_up(self, open_file: OpenFile) -> None:
        self._scheduler.refresh()
        self._touch(open_file)

    def _refresh_dependents(self, file: str, rest: float = 0.0) -> None:
        for other in self._files.values():
            if other.file != file and file in other.answers.dependencies():
                other.rest = rest
                self._read_soon(other, 0)

    def _new_scheduler(self) -> Scheduler:
        def urgency_of(key: str) -> Urgency | None:
            return urgency(self._files.values(), self._focus, key, self._settings.trace_on_open)

        return Scheduler(self._settings.workers, urgency_of, self._reporter.status_changed)

    def _touch(self, open_file: OpenFile) -> None:
        open_file.state = None
        open_file.requests.look_again()
        self._reporter.file_changed(open_file.file)

    def _current_status(self) -> EngineStatus:
        interpreters, troubles = self._interpreters.all, [f.trouble for f in self._files.values() if f.trouble]
        wrong = next((f.good.trouble for f in self._files.values() if f.good and f.good.trouble), "")
        return summarize(interpreters, troubles, self._scheduler.message, self._answers.trouble or wrong, not self.busy)


def _not_open(file: str) -> Failure:
    return NOT_OPEN.failure(file=file)
