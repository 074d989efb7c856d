"""Code of a workspace changes no file but its own temporary ones, starts no program, and reaches nothing."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import attacks
import attempts
import pytest
import pytest_asyncio

from fx_lsp.model import Trace, TraceReply, TraceRequest
from fx_lsp.sandbox import landlock, seccomp
from fx_lsp.tracer.process.zygote import MAX_COMPILERS
from fx_lsp.tracing.workers.launch import Launch, Limits
from fx_lsp.tracing.workers.pool import Mode, Workers

pytestmark = pytest.mark.skipif(
    landlock.version() < landlock.NO_SIGNALS or not seccomp.supported(), reason="this kernel confines less"
)
HERE = str(Path(__file__).parent)
JOBS = str(Path(__file__).parent.parent / "tracing")
LIMITS = Limits(seconds=120, memory_bytes=1 << 30)
PLACES = """
import attempts
place = attempts.Place({place!r}, {port}, {unix!r}, {abstract!r})
done = []

def all_of_them(where):
    for kind in (attempts.WRITES, attempts.PROGRAMS, attempts.CONNECTIONS):
        done.extend(where + ": " + name for name in attempts.run(kind, place) if kind is attempts.PROGRAMS)
    attempts.signals(place)
"""
TRIED = {
    "at import": "all_of_them('at import')",
    "in a call": "def f(x):\n    all_of_them('in a call')\nf(1)",
    "in a decorator": "def deco(f):\n    all_of_them('in a decorator')\n    return f\n@deco\ndef f(x): pass",
    "in __del__": "class Last:\n    def __del__(self):\n        all_of_them('in __del__')\nLast()",
    "in a thread": "import threading\nt = threading.Thread(target=all_of_them, args=('a',))\nt.start()\nt.join()",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "full").mkdir(parents=True)
    (folder / "empty").mkdir()
    for path in (folder / "kept.txt", folder / "full" / "kept.txt"):
        path.write_text("kept")
    (folder / "tool.sh").write_text("#!/bin/sh\n")
    (folder / "tool.sh").chmod(0o700)
    return folder


@pytest.fixture(params=["fork", "spawn"])
def mode(request: pytest.FixtureRequest) -> Mode:
    return request.param


@pytest_asyncio.fixture
async def workers(mode: Mode) -> AsyncIterator[Workers]:
    it = Workers(Launch(sys.executable, job="jobs:run", paths=(HERE, JOBS), warm=False, limits=LIMITS), mode)
    yield it
    await it.close()


async def run(workers: Workers, project: Path, source: str) -> TraceReply:
    file = str(project / "user.py")
    return await workers.run(TraceRequest(file, "f", "function", source, source, "user", "", (str(project),)))


async def notes(workers: Workers, project: Path, source: str) -> tuple[str, ...]:
    reply = await run(workers, project, source)
    assert isinstance(reply.outcome, Trace), reply.outcome
    return reply.outcome.notes


def all_files(folder: Path) -> dict[str, object]:
    """What can be told of a folder: kinds, modes, owners, times, attributes and contents of all that is in it."""
    told: dict[str, object] = {}
    for path in sorted([folder, *folder.rglob("*")]):
        status = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(status.st_mode) else None
        attributes = sorted(os.listxattr(path, follow_symlinks=False))
        times = status.st_mtime_ns, status.st_ctime_ns
        told[str(path.relative_to(folder))] = status.st_mode, status.st_uid, status.st_nlink, times, attributes, content
    return told


class Listener:
    """Sockets of all kinds, and how often something came."""

    def __init__(self, folder: Path) -> None:
        self.unix, self.abstract, self.heard = str(folder / "s"), f"fx-lsp-{os.getpid()}-{folder.name}", 0
        self._ends: list[socket.socket] = []
        self.port = self._stream(socket.AF_INET, ("127.0.0.1", 0)).getsockname()[1]
        with contextlib.suppress(OSError):
            self._stream(socket.AF_INET6, ("::1", self.port))
        self._stream(socket.AF_UNIX, self.unix)
        self._stream(socket.AF_UNIX, "\0" + self.abstract)
        self._datagrams(socket.AF_INET, ("127.0.0.1", self.port))
        self._datagrams(socket.AF_UNIX, self.unix + ".datagrams")

    def _stream(self, family: int, address: object) -> socket.socket:
        end = socket.socket(family, socket.SOCK_STREAM)
        end.bind(address)  # type: ignore[arg-type]
        end.listen()
        return self._listening(end, lambda: end.accept()[0].close())

    def _datagrams(self, family: int, address: object) -> None:
        end = socket.socket(family, socket.SOCK_DGRAM)
        end.bind(address)  # type: ignore[arg-type]
        self._listening(end, lambda: end.recv(100))

    def _listening(self, end: socket.socket, hear: object) -> socket.socket:
        def listen() -> None:
            with contextlib.suppress(OSError):
                while True:
                    hear()  # type: ignore[operator]
                    self.heard += 1

        self._ends.append(end)
        threading.Thread(target=listen, daemon=True).start()
        return end

    def close(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.fixture
def listener(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    it = Listener(tmp_path_factory.mktemp("l"))
    yield it
    it.close()


def prelude(project: Path, listener: Listener) -> str:
    return PLACES.format(place=str(project), port=listener.port, unix=listener.unix, abstract=listener.abstract)


def test_there_are_as_many_ways_as_promised() -> None:
    assert len(attempts.WRITES) >= 80
    assert len(attempts.PROGRAMS) >= 25
    assert len(attempts.CONNECTIONS) >= 12
    assert sum(map(len, attacks.KINDS.values())) >= 90


@pytest.mark.parametrize(
    ("mode", "where"), [*(("fork", where) for where in TRIED), ("spawn", "in a call")], indirect=["mode"]
)
async def test_nothing_is_written_started_or_reached(
    workers: Workers, project: Path, listener: Listener, where: str
) -> None:
    before = all_files(project)
    source = prelude(project, listener) + TRIED[where] + "\nnotes = done\n"
    assert await notes(workers, project, source) == ()
    assert all_files(project) == before
    assert listener.heard == 0


async def test_the_attempts_do_succeed_where_nothing_is_confined(
    mode: Mode, project: Path, listener: Listener, tmp_path: Path
) -> None:
    """So the tests above can fail."""
    free = Workers(
        Launch(
            sys.executable, job="jobs:run", paths=(HERE, JOBS), warm=False, limits=Limits(120, 1 << 30, confined=False)
        ),
        mode,
    )
    source = (
        prelude(project, listener)
        + """
done = attempts.run(attempts.PROGRAMS, place)
attempts.run(attempts.CONNECTIONS, place)
attempts.run({"open a": attempts.WRITES["open a"]}, place)
notes = done
"""
    )
    assert len(await notes(free, project, source)) >= 20
    assert listener.heard >= 8
    assert (project / "kept.txt").read_text() == "kept!"
    await free.close()


async def test_temporary_files_are_written_and_removed_with_the_trace(workers: Workers, project: Path) -> None:
    source = """
import tempfile, os
with tempfile.NamedTemporaryFile("w+") as file:
    file.write("yes")
    file.seek(0)
    notes = [file.read(), os.path.realpath(os.environ["TMPDIR"])]
os.makedirs(os.path.join(tempfile.gettempdir(), "left"))
"""
    text, folder = await notes(workers, project, source)
    assert text == "yes"
    await workers.close()
    assert not Path(folder).exists()
    assert not Path(folder).parent.name.startswith("fx-lsp-scratch") or not Path(folder).parent.exists()


async def test_a_trace_does_not_see_what_another_has_written(workers: Workers, project: Path) -> None:
    write = "import tempfile, os\nopen(os.path.join(tempfile.gettempdir(), 'x'), 'w').close()\nnotes = []"
    look = "import tempfile, os\nnotes = [os.path.exists(os.path.join(tempfile.gettempdir(), 'x'))]"
    await notes(workers, project, write)
    assert await notes(workers, project, look) == ("False",)


async def test_only_the_project_and_the_interpreter_are_read(workers: Workers, project: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    source = f"""
import json, os, sys
notes = []
for path in ({str(project / "kept.txt")!r}, os.__file__, "/etc/hostname", {str(secret)!r}):
    try:
        notes.append(len(open(path).read()) > 0)
    except PermissionError:
        notes.append("denied")
"""
    assert await notes(workers, project, source) == ("True", "True", "True", "denied")


async def test_links_of_a_project_give_no_right_to_what_they_lead_to(
    workers: Workers, project: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "data.txt").write_text("secret")
    (project / "keys").symlink_to(tmp_path / "elsewhere")
    (project / "key.txt").symlink_to(tmp_path / "elsewhere" / "data.txt")
    (project / "own").symlink_to(project / "full")
    source = f"""
notes = []
for path in ("keys/data.txt", "key.txt", "own/kept.txt"):
    try:
        notes.append(open({str(project)!r} + "/" + path).read())
    except PermissionError:
        notes.append("denied")
"""
    assert await notes(workers, project, source) == ("denied", "denied", "kept")


async def test_what_the_user_allows_is_read_and_started(mode: Mode, project: Path, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("data")
    limits = Limits(60, 1 << 30, reads=(str(tmp_path / "data.txt"),), programs=("uname",))
    workers = Workers(Launch(sys.executable, job="jobs:run", paths=(HERE, JOBS), warm=False, limits=limits), mode)
    source = f"""
import subprocess
notes = [open({str(tmp_path / "data.txt")!r}).read(), subprocess.check_output(["uname"]).decode().strip()]
for program in ("true", "/bin/sh"):
    try:
        notes.append(subprocess.call([program]))
    except PermissionError:
        notes.append("denied")
"""
    assert await notes(workers, project, source) == ("data", os.uname().sysname, "denied", "denied")
    await workers.close()


async def test_the_home_folder_has_only_what_may_be_read(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = tmp_path / "home", tmp_path / "home" / "code" / "project"
    project.mkdir(parents=True)
    for path in (
        ".config/tool.rc",
        ".cache/weights.json",
        ".cache/huggingface/hub/config.json",
        ".cache/huggingface/token",
        ".cache/fx-lsp/traces",
        "data/set.txt",
        "code/project/own.txt",
    ):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(path)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    limits = Limits(60, 1 << 30, reads=("~/data",))
    workers = Workers(Launch(sys.executable, job="jobs:run", paths=(HERE, JOBS), warm=False, limits=limits), mode)
    source = f"""
import os
notes, real = [], {str(home)!r}
secrets = real + "/.cache/fx-lsp/traces", "~/.cache/fx-lsp/traces", real + "/.cache/huggingface/token"
others = "~/.cache/huggingface/hub/config.json", "~/data/set.txt", "~/code/project/own.txt"
for path in ("~/.config/tool.rc", real + "/.cache/weights.json", *secrets, *others):
    try:
        notes.append(open(os.path.expanduser(path)).read())
    except OSError as error:
        notes.append(type(error).__name__)
"""
    assert await notes(workers, project, source) == (
        "FileNotFoundError",
        "PermissionError",
        "PermissionError",
        "FileNotFoundError",
        "PermissionError",
        ".cache/huggingface/hub/config.json",
        "data/set.txt",
        "code/project/own.txt",
    )
    await workers.close()


@pytest.mark.parametrize("below", ["", "code"])
async def test_a_script_in_the_home_folder_reads_the_modules_beside_it(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """And nothing else of the home folder: also where that is a project, for a file in a folder of it."""
    home = tmp_path / "home"
    for path in ("beside.py", "package/__init__.py", "package/data.txt", "data.txt", ".ssh/id", "code/own.txt"):
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(f"told = {path!r}")
    monkeypatch.setenv("HOME", str(home))
    workers = Workers(Launch(sys.executable, job="jobs:run", paths=(HERE, JOBS), warm=False, limits=LIMITS), mode)
    source = f"""
import sys
sys.path.insert(0, {str(home)!r})
import beside, package
notes = [beside.told, package.told]
for path in ("package/data.txt", "data.txt", ".ssh/id", "code/own.txt"):
    try:
        notes.append(open({str(home)!r} + "/" + path).read()[8:-1])
    except PermissionError:
        notes.append("denied")
"""
    request = TraceRequest(str(home / below / "user.py"), "f", "function", source, source, "user", "", (str(home),))
    outcome = (await workers.run(request)).outcome
    assert isinstance(outcome, Trace), outcome
    own = "code/own.txt" if below else "denied"
    assert outcome.notes == ("beside.py", "package/__init__.py", "package/data.txt", "denied", "denied", own)
    await workers.close()


async def test_a_database_of_the_project_is_read(workers: Workers, project: Path) -> None:
    with sqlite3.connect(project / "data.db") as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("INSERT INTO t VALUES (7)")
    connection.close()
    source = f"""
import sqlite3
from fx_lsp.tracer.program.effects import forbid_effects
with forbid_effects():
    connection = sqlite3.connect({str(project / "data.db")!r})
    notes = [connection.execute("SELECT x FROM t").fetchone()[0]]
    try:
        connection.execute("INSERT INTO t VALUES (8)")
    except sqlite3.OperationalError as error:
        notes.append(error)
"""
    assert await notes(workers, project, source) == ("7", "attempt to write a readonly database")


async def test_locks_and_queues_of_processes_work_between_threads(workers: Workers, project: Path) -> None:
    source = """
import multiprocessing, threading
from fx_lsp.tracer.program.processes.semaphores import thread_semaphores
with thread_semaphores():
    lock, queue, value = multiprocessing.RLock(), multiprocessing.Queue(), multiprocessing.Value("i", 4)
    with lock, lock:
        queue.put(3)
    thread = threading.Thread(target=lambda: queue.put(lock.acquire(False)))
    lock.acquire()
    notes = [queue.get(timeout=60)]
    thread.start()
    notes += [queue.get(timeout=60), value.value, multiprocessing.Array("d", 2)[:]]
    lock.release()
    try:
        lock.release()
    except AssertionError as error:
        notes.append(error)
"""
    assert await notes(workers, project, source) == (
        "3",
        "False",
        "4",
        "[0.0, 0.0]",
        "attempt to release recursive lock not owned by thread",
    )


async def test_files_grow_within_bounds(workers: Workers, project: Path) -> None:
    source = """
import tempfile
notes = []
with tempfile.TemporaryFile() as file:
    try:
        file.truncate(2 << 30)
    except OSError as error:
        notes.append(type(error).__name__)
"""
    assert await notes(workers, project, source) == ("OSError",)


async def test_code_schedules_its_own_process(workers: Workers, project: Path) -> None:
    source = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
notes = [len(os.sched_getaffinity(0)), os.nice(1) > 0]
"""
    assert await notes(workers, project, source) == ("1", "True")


@pytest.fixture
def target(project: Path, tmp_path: Path) -> Iterator[attacks.Target]:
    (tmp_path / "secret").mkdir()
    ids = (
        attempts.LIBC.semget(0, 1, 0o1600),
        attempts.LIBC.msgget(0, 0o1600),
        attempts.LIBC.shmget(0, ctypes.c_size_t(4096), 0o1600),
    )
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as victim:
        yield attacks.Target(victim.pid, str(project), str(tmp_path / "secret"), ids)
        victim.kill()
    for remove, number in zip(("semctl", "msgctl", "shmctl"), ids, strict=True):
        getattr(attempts.LIBC, remove)(number, 0, 0)


def seen(target: attacks.Target) -> list[object]:
    """What others notice of attacks: the state of the process, and whether System V has what it had."""
    pid, (semaphore, queue, memory) = target.pid, target.ids
    told, libc, place = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split(), attempts.LIBC, bytes(200)
    states = [
        told[0] in "RS",
        *(told[n] for n in (1, 2, 3, 16, 38, 39)),
    ]  # parent, group, session, nice, priority, policy
    shared = [libc.semctl(semaphore, 0, 12), libc.msgctl(queue, 2, place), libc.shmctl(memory, 2, bytes(200))]
    return [
        states,
        os.sched_getaffinity(pid),
        attempts.call(252, 31, 1, pid),
        resource.prlimit(pid, 7),
        shared,
        place[48:],
    ]


ATTACK = """
import attacks
notes = attacks.run({kind!r}, attacks.{target!r})
"""


@pytest.mark.parametrize("kind", attacks.KINDS)
async def test_no_attack_succeeds(mode: Mode, kind: str, project: Path, target: attacks.Target, tmp_path: Path) -> None:
    launch = Launch(sys.executable, job="jobs:run", paths=(HERE, JOBS), warm=False, limits=LIMITS)
    workers, before = Workers(launch, mode), (seen(target), all_files(project))
    scratch = (*await notes(workers, project, "import os\nnotes = [os.environ['TMPDIR']]"),)[0]
    assert await notes(workers, project, ATTACK.format(kind=kind, target=target)) == ()
    assert (seen(target), all_files(project)) == before
    await workers.close()
    assert not Path(scratch).parent.exists() or "fx-lsp-scratch" not in scratch


async def test_attacks_succeed_where_nothing_is_confined(mode: Mode, project: Path, target: attacks.Target) -> None:
    """So the test above can fail."""
    limits = Limits(120, 1 << 30, confined=False)
    workers = Workers(Launch(sys.executable, job="jobs:run", paths=(HERE, JOBS), warm=False, limits=limits), mode)
    for kind, least in (("locks", 5), ("sums", 8), ("System V", 3), ("processes", 12)):
        assert len(await notes(workers, project, ATTACK.format(kind=kind, target=target))) >= least, kind
    await workers.close()


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="others have no capabilities to lose")
async def test_root_reads_no_environment_of_others_and_changes_no_file(workers: Workers, project: Path) -> None:
    source = f"""
import os
notes = []
for pid in (1, os.getppid(), {os.getpid()}):
    for name in ("environ", "maps"):
        try:
            open(f"/proc/{{pid}}/{{name}}").read()
            notes.append("read")
        except OSError as error:
            notes.append(type(error).__name__)
notes += [open({str(project / "locked.txt")!r}).read(), open("/proc/self/status").read().split("CapEff:")[1].split()[0]]
"""
    locked = project / "locked.txt"
    locked.write_text("of another user")
    locked.chmod(0o400)
    os.chown(locked, 65534, 65534)
    assert await notes(workers, project, source) == (*["PermissionError"] * 6, "of another user", f"{1 << 2:016x}")


@pytest.mark.parametrize("mode", ["fork"], indirect=True)
async def test_a_trace_gets_a_bounded_number_of_compilers(workers: Workers, project: Path) -> None:
    source = """
import time
notes = []
from fx_lsp.tracer.process import compilers
streams = []
while len(streams) < 12:
    try:
        streams.append(compilers.requests.connect())
    except OSError:  # descriptors on their way are counted for a user
        time.sleep(0.1)
time.sleep(3)
for writer, reader in streams:
    writer.write("[]\\n")
    try:
        writer.flush()
    except BrokenPipeError:
        notes.append("refused")
"""
    for _ in range(2):  # those of the first trace have ended with it
        assert await notes(workers, project, source) == ("refused",) * (12 - MAX_COMPILERS)


@pytest.mark.parametrize("allowed", [(), ("uname",)])
def test_the_dynamic_loader_starts_no_program_of_the_system(tmp_path: Path, allowed: tuple[str, ...]) -> None:
    source = f"""
import json, subprocess, sys
from fx_lsp.sandbox import confinement
confinement.begin({str(tmp_path)!r}, confinement.Allowance(programs={allowed!r}))
confinement.enter((), assembles=not {allowed!r})
command = confinement._programs()[0] + "/ptxas" if not {allowed!r} else "uname"
codes = [subprocess.run([command, "--version"], capture_output=True).returncode]
for program in ("/bin/true", "/usr/bin/true", sys.executable):
    codes.append(subprocess.run([{attempts.loader()!r}, program, "--version"], capture_output=True).returncode)
print(json.dumps(codes))
"""
    if not allowed:
        pytest.importorskip("triton")
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [0, 127, 127, 127]
