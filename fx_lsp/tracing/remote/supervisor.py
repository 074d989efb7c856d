"""Supervise a job in the Python of a host. This source is sent there, behind that of what removes folders (`payload`),
and needs nothing but a Python.

It unpacks the job into a new folder, starts the runner, and forwards its output. It ends every process of the job and
removes the folder when the job ends, is cancelled, takes too long, when nobody listens any more, or when a scheduler
asks this process to end. The next supervisor removes the files of one that was killed: a lock on the folder shows which
are alive. Python 3.7 has to parse this file, to report that it is too old.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import pickle
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fx_lsp.sandbox.removal import remove_tree

try:
    import fcntl
except ImportError:  # Windows, on which an open folder cannot be removed: no lock is needed
    fcntl = None  # type: ignore[assignment]

OLDEST, OLDEST_TORCH = (3, 10), (2, 6)
BEAT_SECONDS = 2.0
GRACE_SECONDS = 5.0
DISK_NEEDED = 256 << 20
PREFIX, UNLOCKED = "fx-lsp-job-", "fx-lsp-new-"
UNLOCKED_SECONDS = 60.0
"""The most seconds that a folder may be without its lock."""
MARK = "FX_LSP_JOB"
"""The environment variable that marks every process of a job; its value is the job's folder."""
CACHES = {
    "TMPDIR": ".files/tmp",
    "TRITON_HOME": ".files/triton",
    "TRITON_CACHE_DIR": ".files/triton/cache",
    "TORCHINDUCTOR_CACHE_DIR": ".files/inductor",
    "TORCH_EXTENSIONS_DIR": ".files/extensions",
    "PYTORCH_KERNEL_CACHE_PATH": ".files/kernels",
    "CUDA_CACHE_PATH": ".files/cuda",
}
"""Environment variables of programs that write files, and folders of the job for them, from which Python does not
import.
"""


def supervise(channel: Any) -> None:
    """Run one job. It is received as a dict, in which "{folder}" in an argument means the job's folder.

    Pairs are sent: ("beat", ""), ("line", a line that the runner printed), and at last ("end", JSON), or ("refused",
    JSON) with the reason why nothing was started.
    """
    if sys.version_info[:2] < OLDEST:
        refuse(channel, "python", version=sys.version.split()[0], executable=sys.executable)
        return
    ear = Ear()
    task = channel.receive()
    torch = version_of("torch")
    if task["torch"] and (not torch or is_older(torch, OLDEST_TORCH)):
        refuse(channel, "torch", version=torch, executable=sys.executable)
        return
    channel.setcallback(ear.told, endmarker="closed")
    ear.told("beat")
    signal.signal(signal.SIGTERM, ear.signalled)
    base, folder = task["folder"], ""
    try:
        base = str(Path(base).expanduser()) if base else tempfile.gettempdir()
        sweep(base)
        free = shutil.disk_usage(base).free
        if free < DISK_NEEDED:
            refuse(channel, "disk", folder=base, free=free)
            return
        folder, lock = new_folder(base)
        with zipfile.ZipFile(io.BytesIO(task["payload"])) as payload:
            payload.extractall(folder)
        for name in CACHES.values():
            Path(folder, name).mkdir(parents=True, exist_ok=True)
        with_home(Path(folder, "job.json"))
        result = Running(channel, ear, task, folder, lock).result()
    except OSError as error:
        refuse(channel, "folder", folder=base or "a temporary folder", why=error.strerror or str(error))
        return
    finally:
        if folder:
            end_processes(folder)
            remove_tree(folder)
    channel.send(("end", json.dumps(result)))


def supervise_apart() -> None:
    """Run one job, received over this process's input, in a detached process.

    If the starting process ends or is killed, the input ends, and the job with it.
    """
    if not hasattr(os, "fork") or os.fork() == 0:
        supervise(Pipes())


class Pipes:
    """Provide a channel over this process's input and output."""

    def receive(self) -> Any:
        return pickle.load(sys.stdin.buffer)

    def send(self, pair: tuple[str, str]) -> None:
        with contextlib.suppress(OSError):
            sys.stdout.buffer.write(pickle.dumps(pair))
            sys.stdout.buffer.flush()

    def setcallback(self, told: Callable[[str], None], endmarker: str) -> None:
        def listen() -> None:
            while os.read(0, 1):
                pass
            told(endmarker)

        threading.Thread(target=listen, daemon=True).start()


def refuse(channel: Any, kind: str, **facts: Any) -> None:
    channel.send(("refused", json.dumps(dict(facts, kind=kind))))


def version_of(package: str) -> str:
    """Return a package's version, without importing it: "" if it is not installed, "unknown" if it has none."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return ""
    for name in ("version.py", "__init__.py"):
        with contextlib.suppress(OSError):
            text = (Path(spec.origin or "/").parent / name).read_text("utf-8", "replace")
            match = re.search(r"^__version__\s*(?::.*)?=\s*['\"](.+?)['\"]", text, re.M)
            if match:
                return match.group(1)
    return "unknown"


def is_older(version: str, than: tuple[int, ...]) -> bool:
    """Return True if a version precedes `than`; False for an unknown one."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[: len(than)])
    return bool(numbers) and numbers < than


def new_folder(base: str) -> tuple[str, int]:
    """Create a private folder, and a lock on it that is held until the process ends."""
    unlocked = Path(tempfile.mkdtemp(prefix=UNLOCKED, dir=base))
    if fcntl is None:
        return str(unlocked), -1
    lock = os.open(unlocked, os.O_RDONLY)
    with contextlib.suppress(OSError):  # a file system without locks, on which nobody sweeps either
        fcntl.flock(lock, fcntl.LOCK_EX)
    folder = unlocked.with_name(PREFIX + unlocked.name[len(UNLOCKED) :])
    unlocked.rename(folder)
    return str(folder), lock


def with_home(file: Path) -> None:
    """Replace a leading "~" in the folders that a job imports from by this home."""
    if file.exists():
        job = json.loads(file.read_text("utf-8"))
        job["paths"] = [str(Path(path).expanduser()) for path in job["paths"]]
        file.write_text(json.dumps(job), "utf-8")


def sweep(base: str) -> None:
    """Remove the files of jobs whose supervisor and runner are both gone, and end their remaining processes."""
    if fcntl is None:
        return
    for entry in os.scandir(base):
        if not entry.name.startswith((PREFIX, UNLOCKED)) or not entry.is_dir(follow_symlinks=False):
            continue
        with contextlib.suppress(OSError):
            status = entry.stat(follow_symlinks=False)
            young = entry.name.startswith(UNLOCKED) and time.time() - status.st_mtime < UNLOCKED_SECONDS
            if young or status.st_uid != os.getuid():
                continue
            lock = os.open(entry.path, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                end_processes(entry.path)
                remove_tree(entry.path)
            finally:
                os.close(lock)


def end_processes(folder: str) -> None:
    """End every process that carries the job's mark, also outside of its process group."""
    mark = (MARK + "=" + folder + "\0").encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes() + b"\0" and int(process.name) != os.getpid():
                os.kill(int(process.name), signal.SIGKILL)


class Ear:
    """Record when the other side last sent something, and the reason to end the job, if any.

    If nothing arrives for too long, the job and this process end, because nobody receives the results.
    """

    def __init__(self) -> None:
        self.why = ""
        self.heard = time.monotonic()
        self.silence = 60.0
        self.folder = ""
        threading.Thread(target=self.guard, daemon=True).start()

    def told(self, word: str) -> None:
        """Record a message of the other side: a sign of life ("beat"), or a reason to end the job."""
        self.heard = time.monotonic()
        if word != "beat":
            self.why = self.why or word

    def signalled(self, number: int, frame: Any) -> None:
        """Handle a scheduler's signal to end the job; the scheduler kills it soon after."""
        self.told("terminated")

    def guard(self) -> None:
        while time.monotonic() - self.heard < self.silence:
            time.sleep(0.5)
        if self.folder:
            end_processes(self.folder)
            remove_tree(self.folder)
        os._exit(1)


class Running:
    """Manage a started runner, and the threads that watch it."""

    def __init__(self, channel: Any, ear: Ear, task: dict[str, Any], folder: str, lock: int) -> None:
        self.channel, self.ear, self.folder = channel, ear, folder
        self.ear.silence, self.ear.folder = task["silence"], folder
        self.deadline = time.monotonic() + task["seconds"]
        self.lines: queue.Queue[str | None] = queue.Queue()
        self.errors = ""
        self.ended = threading.Event()
        environment = dict(os.environ, **{name: str(Path(folder, at)) for name, at in CACHES.items()})
        environment.update({MARK: folder, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"})
        self.process = subprocess.Popen(
            [sys.executable, *(word.replace("{folder}", folder) for word in task["arguments"])],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if lock < 0 else (lock,),
        )
        for work in (self.read, self.read_errors, self.watch):
            threading.Thread(target=work, daemon=True).start()

    def result(self) -> dict[str, Any]:
        """Forward the output of the runner until it ends, and return its result."""
        while True:
            try:
                line = self.lines.get(timeout=BEAT_SECONDS)
            except queue.Empty:
                self.channel.send(("beat", ""))
                continue
            if line is None:
                break
            self.channel.send(("line", line))
        status = self.process.wait()
        self.ended.set()
        return {"status": status, "why": self.ear.why, "errors": self.errors}

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.decode("utf-8", "replace").rstrip("\n"))
        self.lines.put(None)

    def read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.errors = (self.errors + line.decode("utf-8", "replace"))[-8000:]

    def watch(self) -> None:
        """End the job when there is a reason to; never waits for the other side."""
        while not self.ear.why:
            if self.ended.wait(0.2):
                return
            if self.process.poll() is not None:
                end_processes(self.folder)  # its child processes may hold its output open
            if time.monotonic() > self.deadline:
                self.ear.why = self.ear.why or "limit"
        if os.name == "nt":
            self.process.kill()
        else:
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
        end_processes(self.folder)
