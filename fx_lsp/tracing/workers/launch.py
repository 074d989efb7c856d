"""Start a worker process in the user's interpreter: command line, environment, and why it failed."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import fx_lsp
from fx_lsp.errors import WorkerStartError
from fx_lsp.sandbox.removal import remove_tree
from fx_lsp.tracing.workers.channels import OutputTail, Quota, receive
from fx_lsp.tracing.workers.processes import SETTING_HINT, TORCH_HINT, Process, describe_status, gist, start_process

if sys.platform != "win32":
    import fcntl

START_SECONDS = 180.0
PACKAGE = Path(fx_lsp.__file__).parent

_SET = {
    "PYTORCH_JIT": "0",  # a scripted function is traced as it is written
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "MALLOC_ARENA_MAX": "2",  # each arena reserves 64 MiB of what the memory limit counts
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "TOKENIZERS_PARALLELISM": "false",
}
# PYTHONPATH travels as an argument: entries of it that hide the standard library would break the interpreter's start.
_UNSET = (
    "PYTHONPATH",
    "PYTHONDEVMODE",
    "PYTHONINSPECT",
    "PYTHONMALLOCSTATS",
    "PYTHONPROFILEIMPORTTIME",
    "PYTHONTRACEMALLOC",
    "PYTHONVERBOSE",
    "PYTHONWARNINGS",
    "TORCH_COMPILE_DEBUG",
    "TORCH_DTRACE",
    "TORCH_LOGS",
    "TORCH_LOGS_OUT",
    "TORCH_TRACE",
    "TORCHINDUCTOR_CONV_LOGGING_FILE",
    "TORCHINDUCTOR_MM_LOGGING_FILE",
    "TRITON_KERNEL_DUMP",
    "TRITON_INTERPRET",  # a process that interprets kernels cannot compile them
)
_IN_SCRATCH = ("CUDA_CACHE_PATH", "TORCH_EXTENSIONS_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_HOME")
"""Variables that name a folder where PyTorch and Triton write on their own: in the scratch folder, if they are set."""
_CREDENTIALS = (
    *("*TOKEN", "*TOKENS", "*TOKEN_*", "*SECRET*", "*PASSWORD*", "*PASSWD*", "*PASSPHRASE*", "*SSHPASS", "*_PWD"),
    *("*CREDENTIAL*", "*API_KEY*", "*APIKEY*", "*ACCESS_KEY*", "*_KEY", "*_PAT", "*_AUTH", "*_AUTH_*"),
    *("*COOKIE*", "*_DSN", "*WEBHOOK*", "*CONNECTION_STRING*"),
)
"""Patterns of names, in capitals, of variables that usually hold credentials."""
_CREDENTIALS_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]*@")
_HIDDEN = "hidden"


@dataclass(frozen=True)
class Limits:
    """Hold the limits of one request: `seconds`, and `memory_bytes` beyond what the warm process has.

    Seconds in which its process waits for a processor do not count. Its code may read `reads`, paths besides the
    project and the interpreter, and start `programs`, by name; all that the user may do, unless it is `confined`.

    Processes that nobody has used for `idle_seconds` end; 0 keeps them.
    """

    seconds: float = 60
    memory_bytes: int = 4 << 30
    reads: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    confined: bool = True
    idle_seconds: float = 600


@dataclass(frozen=True)
class Launch:
    """Describe a worker: interpreter, job (`module:function`), extra import paths, limits, and whether torch is
    warmed.
    """

    python: str
    job: str = "fx_lsp.tracer.job:replies"
    paths: tuple[str, ...] = ()
    warm: bool = True
    limits: Limits = Limits()

    def command(self, scratch: str, *role: str) -> list[str]:
        """Return the command line of a worker in the given role that writes to a scratch folder."""
        bootstrap = PACKAGE / "tracer" / "process" / "bootstrap.py"
        command = [self.python, "-X", "utf8", "-B", str(bootstrap), *role, f"--job={self.job}"]
        command += [f"--scratch={scratch}"] if self.limits.confined else []
        command += [f"--path={path}" for path in self.paths]
        command += [f"--allow-read={path}" for path in self.limits.reads]
        command += [f"--allow-program={name}" for name in self.limits.programs]
        if path := os.environ.get("PYTHONPATH"):
            command.append(f"--pythonpath={path}")
        if not self.warm:
            command.append("--no-warm")
        return command


def worker_environment(env: Mapping[str, str], scratch: str) -> dict[str, str]:
    """Return `env` for a worker: no GPU, one thread, offline, nothing that makes Python or torch print, raise, or write
    outside of a scratch folder, and no credentials: code finds another text in their place.
    """
    moved = {name: str(Path(scratch, name.lower())) for name in _IN_SCRATCH if name in env}
    hidden = {name: _HIDDEN for name, value in env.items() if _has_credentials(name, value)}
    return {k: v for k, v in env.items() if k not in _UNSET} | hidden | moved | _SET


def _has_credentials(name: str, value: str) -> bool:
    is_named_so = any(fnmatchcase(name.upper(), pattern) for pattern in _CREDENTIALS)
    return is_named_so or _CREDENTIALS_IN_URL.search(value) is not None


def scratch_folder() -> str:
    """Return a new folder for what a worker writes; remove those whose server ended without removing them.

    Beside each folder is a file that its server has locked, as long as it lives (POSIX). No worker can change it.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*{_LOCK}"):
        with suppress(OSError):
            folder = str(left).removesuffix(_LOCK)
            _locks[folder] = _locked(os.open(left, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0)))
            remove_scratch(folder)
    descriptor, folder = tempfile.mkstemp("", _SCRATCH)
    _locks[folder] = _locked(descriptor)
    Path(folder).rename(folder + _LOCK)
    Path(folder).mkdir(0o700)
    return folder


def _locked(descriptor: int) -> int:
    """Lock an open file, without waiting, and return it. Raises OSError, with the file closed, if another has it."""
    try:
        if sys.platform != "win32":
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def remove_scratch(folder: str) -> None:
    """Remove a folder with what a worker has written."""
    remove_tree(folder)
    if folder in _locks:
        with suppress(OSError):
            Path(folder + _LOCK).unlink()
        os.close(_locks.pop(folder))


_SCRATCH, _LOCK = "fx-lsp-scratch-", ".lock"
_locks: dict[str, int] = {}
"""The locked files of this process's scratch folders."""


@asynccontextmanager
async def compiled_modules(python: str, package: Path) -> AsyncGenerator[None]:
    """Inside, a second process compiles the modules of `package` to the bytecode of an interpreter.

    A worker writes no bytecode. Without this, one whose Python has another version than the server's, or that runs an
    editable installation, would compile these modules at every start. A folder that cannot be written to, and a user
    with `PYTHONDONTWRITEBYTECODE`, remain without bytecode.
    """
    compiler = None
    if not os.environ.get("PYTHONDONTWRITEBYTECODE") and os.access(package, os.W_OK):
        command = [python, "-I", "-m", "compileall", "-q", str(package / "tracer"), str(package)]
        with suppress(WorkerStartError):
            compiler = await start_process(command, merge=True)
    try:
        yield
    finally:
        if compiler is not None:
            await compiler.end()


async def until_ready(python: str, process: Process, reader: asyncio.StreamReader, output: OutputTail) -> None:
    """Wait until a started worker says that it is ready. Raises WorkerStartError where it cannot be, ends, or hangs."""
    try:
        async with compiled_modules(python, PACKAGE):
            hello = await asyncio.wait_for(receive(reader, Quota()), START_SECONDS)
    except asyncio.TimeoutError:
        raise _start_failed(python, None, output.text()) from None
    if hello is not None and "failed" in hello[0]:
        message, kind = str(hello[0].get("message", "")), str(hello[0]["failed"])
        raise WorkerStartError(message, kind, TORCH_HINT, output.text())
    if hello is None or "ready" not in hello[0]:
        await asyncio.wait({process.exited}, timeout=1)
        await output.ended(1)
        raise _start_failed(python, process.exited.result() if process.exited.done() else None, output.text())


def _start_failed(python: str, status: int | None, output: str) -> WorkerStartError:
    """Return the error for a worker that ended (or, with status None, hung) before it was ready."""
    how = f"did not start within {START_SECONDS:g} s" if status is None else f"{describe_status(status)} at its start"
    said = gist(output)
    message, was_killed = f"{python} {how}" + (f": {said}" if said else ""), status is not None and status < 0
    return WorkerStartError(message, "interpreter", SETTING_HINT, output, was_killed)
