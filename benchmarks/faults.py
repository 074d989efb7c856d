"""What somebody in front of an editor has when a process, the disk or the interpreter fails, at every step.

    python benchmarks/faults.py [--processes zygote,tracer] [--hurts killed] [--surroundings "full disk"]

A project is opened, its first lens awaited, edited, shown as a graph and as kernels, and closed. Meanwhile a process
of the server is killed, stopped (SIGSTOP), or starved (it runs 5 ms of every 50); or the surroundings fail. A step has
an answer, or a sentence that says why not; anything else is a silence. Afterwards a new function is traced, and once
the server has ended, processes, descriptors and temporary files are counted. Linux only. Prints two Markdown tables;
exits with 1 where there is a silence or something is left.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from connection import Connection, Ended, Refused, Silent, connect, descriptors, table
from processes import Processes, name, output, parent

SECONDS = 45.0
"""How long a step may take."""
STEPS = ("open", "first lens", "edit", "view", "kernel", "close")
VICTIMS = ("server", "zygote", "world", "parked process", "tracer")
HURTS = ("killed", "stopped", "starved")
OPTIONS = {"limits": {"seconds": 6, "memory": 2048}}
HELPER = "def scaled(x):\n    return x * 2\n"
MODEL = "import torch\n\nfrom helper import scaled\n\n\ndef f(x):\n    return scaled(torch.relu(x)) + {}\n"
PROGRAM = "import torch\n\nfrom model import f\n\nf(torch.randn(4, 8, requires_grad=True))\n"
NEXT = "import torch\n\n\ndef g(x: torch.Tensor):\n    return torch.relu(x) * {}\n"
_numbers = count(1000)


@dataclass
class Row:
    """What came of one fault; `longest` is the longest step in seconds, `left` what was left in the end."""

    steps: int = 0
    answers: int = 0
    sentences: int = 0
    silences: int = 0
    longest: float = 0.0
    left: list[str] = field(default_factory=list[str])
    details: list[str] = field(default_factory=list[str])
    skipped: str = ""

    @property
    def is_wrong(self) -> bool:
        """Return whether there was a silence, or something is left."""
        return self.silences > 0 or bool(self.left)


@dataclass
class User:
    """Somebody at an editor: a connection, and a document that is open."""

    server: Connection
    folder: Path
    number: int = 0
    version: int = 1

    @property
    def uri(self) -> str:
        """Return the URI of the model."""
        return (self.folder / "model.py").as_uri()

    @property
    def text(self) -> str:
        """Return the text of the model."""
        return MODEL.format(self.number)

    async def open(self) -> str:
        """Open the model, with a text that no cache has."""
        self.number, self.version = next(_numbers), 1
        (self.folder / "model.py").write_text(self.text)
        self.server.open(self.uri, self.text)
        await self.server.titles(self.uri)
        return "answer"

    async def first_lens(self) -> str:
        """Wait for a lens about the graph."""
        return await lens(self.server, self.uri)

    async def edit(self) -> str:
        """Change the model, and wait for a hover that shows it."""
        self.number, self.version = next(_numbers), self.version + 1
        self.server.change(self.uri, self.version, {"text": self.text})
        return await self.view()

    async def view(self) -> str:
        """Open the graph."""
        return kind_of(await self.shown("f.forward.py"), f"{self.number}")

    async def kernel(self) -> str:
        """Open the kernels."""
        return kind_of(await self.shown("f.triton.py?triton"), f"{self.number}")

    async def shown(self, view: str) -> str:
        """Return the text of a view."""
        return await self.server.view(f"fx-lsp:{self.folder}/model.py/{view}", SECONDS)

    async def close(self) -> str:
        """Close the model."""
        self.server.close(self.uri)
        await self.server.titles(self.uri)
        return "answer"

    def step(self, what: str) -> Awaitable[str]:
        """Return one of the steps, begun."""
        return getattr(self, what.replace(" ", "_"))()


def kind_of(text: str, wanted: str) -> str:
    """Return "answer" for a view with what is wanted; "sentence" for another text, which says why. Raises Silent."""
    if wanted in text:
        return "answer"
    if len(text.split()) < 4:
        raise Silent(f"a view without a sentence: {text!r}")
    return "sentence"


async def lens(server: Connection, uri: str) -> str:
    """Return "answer" once a document has a lens on a graph, "sentence" if it has a problem. Raises Silent."""

    for _ in range(int(SECONDS / 0.05)):
        titles = await server.titles(uri)
        if any(" ops" in title for title in titles):
            return "answer"
        if any(problem["message"].count(" ") >= 3 for problem in server.problems.get(uri, ())):
            return "sentence"
        await asyncio.sleep(0.05)
    raise Silent(f"no lens and no problem within {SECONDS:.0f} s: {titles}")


async def traces(server: Connection, folder: Path) -> None:
    """Trace a new function. Raises Silent."""
    number = next(_numbers)
    uri = (folder / f"next_{number}.py").as_uri()
    server.open(uri, NEXT.format(number))
    if await lens(server, uri) != "answer":
        raise Silent(f"the next function is not traced: {server.problems[uri][0]['message']}")
    server.close(uri)


def main() -> int:
    """Try all faults."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", default=",".join(VICTIMS))
    parser.add_argument("--hurts", default=",".join(HURTS))
    parser.add_argument("--surroundings", default=",".join(SURROUNDINGS))
    options = parser.parse_args()
    rows: dict[tuple[str, str], Row] = {}
    for victim in filter(None, options.processes.split(",")):
        for hurt in filter(None, options.hurts.split(",")):
            rows[victim, hurt] = asyncio.run(hurt_at(victim, hurt))
            print(f"{victim} {hurt}: {rows[victim, hurt]}", file=sys.stderr)
    others: dict[str, Row] = {}
    for fault in filter(None, options.surroundings.split(",")):
        others[fault] = asyncio.run(surrounded(fault))
        print(f"{fault}: {others[fault]}", file=sys.stderr)
    if rows:
        print(table(("process", "is", *HEADER), [(*key, *cells(row)) for key, row in rows.items()]) + "\n")
    if others:
        print(table(("surroundings", *HEADER), [(key, *cells(row)) for key, row in others.items()]))
    return int(any(row.is_wrong for row in (*rows.values(), *others.values())))


HEADER = ("steps", "answers", "sentences", "silences", "longest", "left")


def cells(row: Row) -> tuple[object, ...]:
    """Return the cells of a row."""
    if row.skipped:
        return ("skipped: " + row.skipped, *[""] * 5)
    left = "; ".join(row.left) or "nothing"
    return (row.steps, row.answers, row.sentences, row.silences, f"{row.longest:.1f} s", left)


async def tried(row: Row, what: str, step: Awaitable[str]) -> None:
    """Do a step, and note what came of it."""
    started = time.monotonic()
    row.steps += 1
    try:
        if await step == "answer":
            row.answers += 1
        else:
            row.sentences += 1
            row.details.append(f"{what}: a sentence")
    except Refused as error:
        row.sentences += 1
        row.details.append(f"{what}: {error}")
    except (Silent, Ended) as error:
        row.silences += 1
        row.details.append(f"{what}: {error!r}")
    row.longest = max(row.longest, time.monotonic() - started)


@asynccontextmanager
async def project(row: Row, options: Mapping[str, Any] = OPTIONS) -> AsyncIterator[User]:
    """Yield a user with a project, and note in the end what is left."""
    with tempfile.TemporaryDirectory(prefix="fx-faults-") as name_:
        folder = Path(name_)
        (folder / "helper.py").write_text(HELPER)
        (folder / "train.py").write_text(PROGRAM)
        async with session(row, folder, options) as user:
            yield user


@asynccontextmanager
async def session(row: Row, folder: Path, options: Mapping[str, Any] = OPTIONS) -> AsyncIterator[User]:
    """Yield a user with a server in a folder; note what it leaves: processes, descriptors, temporary files, bugs."""
    async with connect(folder, options) as server:
        user = User(server, folder)
        yield user
        if server.process.returncode is None:
            await tried(row, "shutdown", _ended(server))
        if not await server.processes.gone():
            row.left += [f"{line[:60]} ({pid})" for pid, line in server.processes.all().items()]
            server.processes.kill(*server.processes.all())
        row.left += server.leftovers
        if server.bugs:
            row.left.append(f"a traceback in the log: {server.first_bug}")


async def _ended(server: Connection) -> str:
    if (code := await server.end()) != 0:
        raise Silent(f"the exit code is {code}")
    return "answer"


# A process of the server.


def victims(processes: Processes, server: int, victim: str) -> list[int]:
    """Return the processes of a kind."""
    if victim == "server":
        return [server]
    zygotes = processes.zygotes()
    if victim == "zygote":
        return zygotes
    parents = {pid: parent(pid) for pid in processes.all()}
    worlds = [pid for pid, above in parents.items() if above in zygotes and name(pid) == "fx-lsp world"]
    if victim == "world":
        return worlds
    below = [pid for pid in parents if any(above in worlds for above in ancestors(pid, parents))]
    tracing = [pid for pid in below if output(pid) not in ("", output(parents[pid]))]
    return [*processes.tracers(), *tracing] if victim == "tracer" else [pid for pid in below if pid not in tracing]


def ancestors(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    """Yield the processes above one."""
    while pid := parents.get(pid, 0):
        yield pid


async def hurt_at(victim: str, hurt: str, steps: Sequence[str] = STEPS) -> Row:
    """Hurt a process at each of the steps."""
    row = Row()
    if victim == "server" and hurt == "killed":
        for step in steps:
            await _server_killed(row, step)
        return row
    async with project(row) as user:
        await traces(user.server, user.folder)
        before = 0
        for number, step in enumerate(steps):
            for earlier in STEPS[: STEPS.index(step)]:
                await tried(row, f"before {step}, {earlier}", user.step(earlier))
            hurting = asyncio.ensure_future(hunted(user.server, victim, hurt, step))
            await tried(row, step, user.step(step))
            await hurting
            await tried(row, f"after {step}", _next(user))
            if step != "close":
                user.server.close(user.uri)
            await user.server.quiet()
            before = before if number else descriptors(user.server.process.pid)
        grown = descriptors(user.server.process.pid) - before
        row.left += [f"{grown} descriptors"] if grown > 4 else []
    return row


async def _next(user: User) -> str:
    await traces(user.server, user.folder)
    return "answer"


async def _server_killed(row: Row, step: str) -> None:
    """Kill the server at a step: the editor starts another, in the same folder with the same cache."""
    async with project(row) as user:
        for earlier in STEPS[: STEPS.index(step)]:
            await tried(row, earlier, user.step(earlier))
        begun = asyncio.ensure_future(user.step(step))
        await asyncio.sleep(0.05)
        os.kill(user.server.process.pid, signal.SIGKILL)
        with suppress(Ended, Refused, Silent):
            await begun
        async with session(row, user.folder) as again:
            for what in STEPS[:4]:
                await tried(row, f"{what} after {step}", again.step(what))


async def hunted(server: Connection, victim: str, hurt: str, step: str) -> None:
    """Find a process of a kind within a second, and hurt it."""
    pids: list[int] = []
    for _ in range(100):
        if pids := victims(server.processes, server.process.pid, victim):
            break
        await asyncio.sleep(0.01)
    for pid in pids[:1]:
        with suppress(ProcessLookupError):
            await HURT[hurt](pid, victim)


async def _kill(pid: int, victim: str) -> None:
    os.kill(pid, signal.SIGKILL)


async def _stop(pid: int, victim: str) -> None:
    """Stop a process. Nobody but the one who stopped it can have a stopped server answer."""
    os.kill(pid, signal.SIGSTOP)
    if victim == "server":
        await asyncio.sleep(1)
        os.kill(pid, signal.SIGCONT)


async def _starve(pid: int, victim: str) -> None:
    """Let a process run for a tenth of two seconds."""
    for _ in range(40):
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(0.045)
        os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(0.005)


HURT = {"killed": _kill, "stopped": _stop, "starved": _starve}


# The surroundings.


async def surrounded(fault: str) -> Row:
    """Try a fault of the surroundings."""
    row = Row()
    try:
        await SURROUNDINGS[fault](row)
    except Unprovoked as reason:
        row.skipped = str(reason)
    return row


class Unprovoked(Exception):
    """A fault cannot be provoked here."""


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[str], None]]:
    """Yield a function that mounts a file system of 192 KiB again with other options. Raises Unprovoked."""
    folder.mkdir(exist_ok=True)

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            raise Unprovoked("only root may mount a small file system")

    if not shutil.which("mount"):
        raise Unprovoked("there is no mount")
    mount("size=192k")
    try:
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


async def all_steps(row: Row, user: User, what: str = "") -> None:
    """Do all steps, and trace another function."""
    for step in STEPS:
        await tried(row, f"{what} {step}".strip(), user.step(step))
    await tried(row, f"{what} next".strip(), _next(user))


async def full_disk(row: Row) -> None:
    """The cache is on a file system that is full."""
    with tempfile.TemporaryDirectory() as disk, small_disk(Path(disk)):
        (Path(disk) / "filler").write_bytes(b"x" * (60 << 10))
        async with project(row, {**OPTIONS, "cache": {"path": f"{disk}/traces.sqlite3"}}) as user:
            for _ in range(4):
                await all_steps(row, user)
            await tried(row, "status", _said(user, "traces are not stored on disk"))


async def read_only_cache(row: Row) -> None:
    """The cache is on a file system that has become read-only."""
    with tempfile.TemporaryDirectory() as disk, small_disk(Path(disk)) as mount:
        options = {**OPTIONS, "cache": {"path": f"{disk}/traces.sqlite3"}}
        async with project(row, options) as user:
            await all_steps(row, user, "before")
        mount("remount,ro")
        async with project(row, options) as user:
            await all_steps(row, user)
            await tried(row, "status", _said(user, "traces are not stored on disk"))


async def _said(user: User, what: str) -> str:
    """Wait for a status that says something."""
    await user.server.until(lambda: what in user.server.status.get("message", ""), 20)
    return "answer"


async def no_descriptors(row: Row) -> None:
    """The server may open no more descriptors, and then may again."""
    import resource

    async with project(row) as user:
        await all_steps(row, user, "before")
        pid = user.server.process.pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (descriptors(pid), limits[1]))
        for step in STEPS:
            await tried(row, step, user.step(step))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
        await all_steps(row, user, "after")


async def clock_jumps(row: Row) -> None:
    """Files are from tomorrow, then from last year: an import that is edited is read again each time."""
    async with project(row) as user:
        helper, now = user.folder / "helper.py", time.time()
        await tried(row, "open", user.open())
        for factor, shift in ((3, 86400), (4, -(365 * 86400)), (5, 2 * 86400), (6, 0)):
            helper.write_text(HELPER.replace("2", str(factor)))
            os.utime(helper, (now + shift, now + shift))
            user.server.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": helper.as_uri(), "type": 2}]})
            await asyncio.sleep(0.3)
            await tried(row, f"factor {factor}", _factor(user, factor))
        await tried(row, "close", user.close())
        async with session(row, user.folder) as again:
            again.number = user.number
            again.server.open(user.uri, user.text)
            await tried(row, "after a restart", _factor(again, 6))


async def _factor(user: User, factor: int) -> str:
    """Open the graph, which multiplies by a factor. Raises Silent."""
    text = await user.shown("f.forward.py")
    if f", {factor})" not in text:
        raise Silent(f"no factor of {factor}: {text[-300:]}")
    return "answer"


async def replaced_interpreter(row: Row) -> None:
    """The interpreter is replaced while it runs: by one like it, by one that fails, and again by one like it."""
    with tempfile.TemporaryDirectory() as place:
        python = Path(place) / "python"

        def replace(text: str) -> None:
            new = python.with_name("new")
            new.write_text(text)
            new.chmod(0o755)
            new.replace(python)

        good = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
        replace(good)
        async with project(row, {**OPTIONS, "interpreter": str(python)}) as user:
            await all_steps(row, user, "before")
            replace(good + "# another\n")
            await all_steps(row, user, "replaced")
            replace("#!/bin/sh\necho broken >&2\nexit 3\n")
            user.server.processes.kill(*user.server.processes.zygotes())
            await asyncio.sleep(0.2)
            for step in STEPS:
                await tried(row, f"broken, {step}", user.step(step))
            replace(good)
            await user.server.ask("workspace/executeCommand", {"command": "fxLsp.restart", "arguments": []})
            await all_steps(row, user, "mended")


async def shared_cache(row: Row) -> None:
    """Two servers have one cache; one of them is killed."""
    async with project(row) as first, session(row, first.folder) as second:
        for user in (first, second, first):
            await all_steps(row, user, "both")
        begun = asyncio.ensure_future(second.open())
        await asyncio.sleep(0.3)
        os.kill(second.server.process.pid, signal.SIGKILL)
        with suppress(Ended, Silent):
            await begun
        await all_steps(row, first, "the other")


SURROUNDINGS: dict[str, Callable[[Row], Awaitable[None]]] = {
    "full disk": full_disk,
    "read-only cache": read_only_cache,
    "no descriptors": no_descriptors,
    "clock jumps": clock_jumps,
    "interpreter replaced": replaced_interpreter,
    "shared cache": shared_cache,
}


if __name__ == "__main__":
    sys.exit(main())
