"""Hosts as the tests look at them, and jobs of a small runner that needs no torch."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from fx_lsp.measured import BenchmarkJob, Event
from fx_lsp.tracing.remote.hosts import Host
from fx_lsp.tracing.remote.jobs import run_job

# A runner that needs no torch: it says who it is, works for a while, and starts a process, as the real one does.
RUNNER = """
import json, os, subprocess, sys, threading, time

def say(**event):
    print(json.dumps(event), flush=True)

def watch():
    while os.read(0, 1000):
        pass
    child.kill()
    os._exit(1)

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True)
threading.Thread(target=watch, daemon=True).start()
job = json.load(open("job.json"))
say(progress={"text": "started", "done": os.getpid(), "total": os.getppid()})
for step in range(int(job["name"])):
    time.sleep(0.05)
    say(progress={"text": "working", "done": step, "total": 0})
    if os.path.exists("enough"):
        break
say(failed={"message": "ran in " + os.getcwd(), "hint": ""})
child.kill()
"""
FILES = {"fx_lsp/__init__.py": b"", "fx_lsp/bench/__init__.py": b"", "fx_lsp/bench/__main__.py": RUNNER.encode()}
LONG, SHORT = BenchmarkJob("100000", ()), BenchmarkJob("2", ())


@dataclass
class Box:
    """A host behind sshd, and the folder where its jobs keep their files."""

    host: Host
    folder: Path

    def end_jobs(self) -> None:
        """End the jobs that run there after their next step."""
        for job in self.folder.glob("fx-lsp-job-*"):
            (job / "enough").touch()

    def left(self) -> list[str]:
        """What is left of jobs there: files, and processes that work in the folder."""
        found = [str(path.relative_to(self.folder)) for path in self.folder.iterdir()]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                environment = Path("/proc", pid, "environ").read_bytes()
                if f"FX_LSP_JOB={self.folder}".encode() in environment and _state(pid) != "Z":
                    found.append(Path("/proc", pid, "cmdline").read_text().replace("\0", " "))
            except OSError:
                pass
        return found

    def left_at_last(self, seconds: float = 10) -> list[str]:
        """The same, once nothing more goes."""
        for _ in range(int(seconds / 0.05)):
            if not self.left():
                break
            time.sleep(0.05)
        return self.left()


MakeBox = Callable[..., Box]


async def events_of(
    host: Host, job: BenchmarkJob = SHORT, then: Callable[[int, int], object] | None = None, **options: float
) -> list[Event]:
    """The events of a job of the small runner; `then` is called once it works, with its pid and its supervisor's."""
    found: list[Event] = []

    async def listen() -> None:
        async with aclosing(run_job(host, job, FILES, **options)) as events:
            async for event in events:
                found.append(event)
                if getattr(event, "text", "") == "started" and then is not None:
                    then(event.done, event.total)

    await asyncio.wait_for(listen(), 60)
    return found


def _state(pid: str) -> str:
    return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0]
