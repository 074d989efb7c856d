"""Check kernels in the background: those of shown documents, and files of kernels that the user keeps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fx_lsp.features.kernel_files import KernelCheck
from fx_lsp.features.kernels import RESOURCES, work_of
from fx_lsp.features.wording.uris import View, format_uri
from fx_lsp.server.client import Client
from fx_lsp.server.display.diagnostics import publish_check
from fx_lsp.server.display.text_edits import put_text
from fx_lsp.server.documents import OpenText
from fx_lsp.server.engines import Engines
from fx_lsp.server.progress import Progresses
from fx_lsp.server.refresh import RefreshTimer
from fx_lsp.server.session import Session
from fx_lsp.server.tasks import Tasks

if TYPE_CHECKING:
    from fx_lsp.tracing.kernel_files.checking import Checked
    from fx_lsp.tracing.kernel_files.generated import Generated

QUIET_SECONDS = 1.0
"""Seconds until a check begins: a newer text, or a closed document, cancels it."""


@dataclass(frozen=True)
class CheckSteps:
    """Hold what is before and after a check: `generated` returns the kernels, None if they have changed, and `ended`
    shows the result.
    """

    generated: Callable[[], Awaitable[Generated | None]]
    ended: Callable[[Checked], Awaitable[None]]


@dataclass
class KernelChecks:
    """Run the checks of kernels, one at a time, and record them in `Session.checks`.

    A check ends with its document, and if a newer text of it is checked.
    """

    session: Session
    client: Client
    tasks: Tasks
    progresses: Progresses
    engines: Engines
    refresh: RefreshTimer
    _running: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, "asyncio.Task[None]"])
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def shown(self, view: View, text: str, renew: Callable[[View], None]) -> None:
        """Check the kernels with this text in a document; `renew` then shows the document with its errors."""

        async def generated() -> Generated | None:
            from fx_lsp.tracing.kernel_files.generated import Generated, generate

            engine = self.session.engine
            kernels = await generate(engine, view.file, view.name, view.work) if engine is not None else None
            return kernels if isinstance(kernels, Generated) and kernels.text == text else None

        async def ended(checked: Checked) -> None:
            self.refresh.updated(view.file)
            if checked.wrong:
                renew(view)

        self._start(format_uri(view), KernelCheck(view.file, text), CheckSteps(generated, ended))

    def written(self, file: str, kernels: Generated, text: str) -> None:
        """Check a file of kernels with this text, generated as `kernels` and perhaps edited since."""
        from fx_lsp.tracing.kernel_files.generated import conflicts_in, without_failure

        _, own = without_failure(text.replace("\r\n", "\n"))
        former = self.session.checks.get(file)
        if conflicts_in(text) or (former is not None and (former.output or "").startswith("not checked")):
            self.stop(file)
        if conflicts_in(text):
            return

        async def generated() -> Generated:
            await asyncio.sleep(0)
            return replace(kernels, text=own)

        async def ended(checked: Checked) -> None:
            self.refresh.updated(file)
            with suppress(OSError):  # the diagnostic remains
                await self._report(file, own, checked)

        self._start(file, KernelCheck(kernels.source, own), CheckSteps(generated, ended))

    def opened(self, document: OpenText) -> None:
        """Check a file of kernels that the client has opened or saved; ignore any other file."""
        from fx_lsp.tracing.kernel_files.generated import is_known, record_of

        async def look() -> None:
            await self.session.started.wait()  # until the settings are known, nothing is trusted
            record = await asyncio.to_thread(record_of, document.file)
            if record is not None and self.session.documents.get(document.uri) is not None:
                self.written(document.file, record.of(document.text), document.text)
                self.refresh.updated(document.file)  # what is shown may be the result for an older text

        if is_known(document.file):
            self.tasks.spawn("a check of kernels", look())

    def stop(self, key: str) -> None:
        """Cancel a check, and forget its result: of a file by its path, of a view by its URI."""
        self.session.checks.pop(key, None)
        task = self._running.pop(key, None)
        if task is not None:
            task.cancel()

    async def trust_changed(self) -> None:
        """End the checks of code that must not run any longer, and check the open files whose code may run now."""
        keys = [key for key, check in self.session.checks.items() if not self.session.trusts(check.source)]
        tasks = [self._running[key] for key in keys if key in self._running]
        for key in keys:
            self.stop(key)
        await asyncio.gather(*tasks, return_exceptions=True)
        for document in self.session.documents:
            self.opened(document)

    def _start(self, key: str, check: KernelCheck, steps: CheckSteps) -> None:
        former = self.session.checks.get(key)
        if (former is not None and former.text == check.text) or not self.session.trusts(check.source):
            return
        self.stop(key)
        self.session.checks[key] = check
        self._running[key] = self.tasks.spawn("a check of kernels", self._run(key, check, steps))

    async def _run(self, key: str, check: KernelCheck, steps: CheckSteps) -> None:
        """Wait, check the kernels, and record the result."""
        from fx_lsp.tracing.kernel_files.checking import Checked

        checked = Checked("not checked: it was cancelled\n")
        try:
            await asyncio.sleep(QUIET_SECONDS)
            async with self._turn:
                kernels = await steps.generated()
                if kernels is not None:
                    checked = await self._checked(kernels)
        finally:
            if self.session.checks.get(key) is check:
                self.session.checks[key] = replace(check, output=checked.output, wrong=checked.wrong)
        await steps.ended(checked)

    async def _checked(self, kernels: Generated) -> Checked:
        """Compile the kernels in a separate engine, so that edits do not disturb it, and compare them."""
        from fx_lsp.tracing.kernel_files.checking import CheckPlace, check, compile_errors
        from fx_lsp.tracing.workers.find_python import find_interpreter

        session, source = self.session, self.session.source(kernels.source)
        settings, roots = session.engine_settings(), session.roots_of(kernels.source)
        task, title = asyncio.current_task(), f"Checking kernels of {kernels.title}"
        async with self.progresses.shown(title, task.cancel if task else lambda: None) as tell:
            errors: tuple[str, ...] = ()
            if source is not None:
                tell("compiling")
                engine = self.engines.make(replace(settings, trace_on_open=False), lambda file: None, lambda _: None)
                try:
                    for document in session.documents:  # the target may import unsaved files
                        engine.open(document.file, document.text, session.roots_of(document.file))
                    engine.open(kernels.source, source, roots)
                    compiled = work_of(RESOURCES, session.settings.gpu, kernels.work)
                    errors = await compile_errors(engine, kernels, compiled) or ()
                finally:
                    await engine.shutdown()
            tell("comparing with the original")
            python = await asyncio.to_thread(find_interpreter, settings.interpreter_of(roots), roots, os.environ)
            return await check(kernels.text, source or "", errors, CheckPlace(python, roots, settings.limits))

    async def _report(self, file: str, text: str, checked: Checked) -> None:
        """Put the errors of a check at the top of its file, unless that was edited since. Raises OSError."""
        from fx_lsp.tracing.kernel_files.checking import with_failure
        from fx_lsp.tracing.kernel_files.generated import read, without_failure

        document = self.session.documents.of_file(file)
        present = read(file) if document is None else document.text
        if present is None:
            return
        if checked.done and without_failure(present.replace("\r\n", "\n"))[1] == text:
            reported = with_failure(present, checked)
            if reported != present and not await put_text(
                self.session, self.client, Path(file), reported, "Errors of kernels"
            ):
                present = reported
        publish_check(self.session, self.client, file, present)
