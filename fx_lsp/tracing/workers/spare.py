"""Workers without fork: every request has a fresh process, and one warm spare waits for the next."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress

from fx_lsp.tracing.workers.channels import OutputTail, receive
from fx_lsp.tracing.workers.child import Child
from fx_lsp.tracing.workers.launch import START_SECONDS, Launch, is_ready, start_failed, worker_environment
from fx_lsp.tracing.workers.processes import kill_group, start_process
from fx_lsp.wire import frame


async def start_spare(launch: Launch, packages: Sequence[str]) -> Child:
    """Start a process that imports torch and `packages` and then waits for a request. Raises WorkerStartError."""
    process = await start_process(launch.command("once"), env=worker_environment(os.environ), stdin=True)
    assert process.stdin is not None and process.stderr is not None
    output = OutputTail(process.stderr)

    def kill() -> None:
        process.kill()
        kill_group(process.pid)

    child = Child(process.pid, process.stdout, process.stdin, output, process.exited, kill, process.transport.close)
    try:
        hello = await asyncio.wait_for(receive(process.stdout), START_SECONDS)
        if is_ready(launch.python, hello, output.text()):
            preload(child, packages)
            return child
        await asyncio.wait({process.exited}, timeout=1)
        await output.ended(1)
        raise start_failed(launch.python, process.exited.result() if process.exited.done() else None, output.text())
    except BaseException as error:
        await child.end()
        if isinstance(error, asyncio.TimeoutError):
            raise start_failed(launch.python, None, output.text()) from None
        raise


def preload(child: Child, packages: Sequence[str]) -> None:
    """Have a waiting process import installed packages."""
    if packages:
        with suppress(OSError):
            child.writer.write(frame({"preload": list(packages)}))
