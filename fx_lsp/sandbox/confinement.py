"""Confine this process in two steps: at its start, and before it runs code of a workspace.

What the system lacks for it is returned as gaps, each a sentence; the process then runs without that part.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from fx_lsp.sandbox import landlock, macos, readable, seccomp
from fx_lsp.sandbox.landlock import READ, WRITE, FileAccess
from fx_lsp.sandbox.removal import remove_tree

FILE_BYTES = 1 << 30
"""The largest file that a confined process can write."""
OPEN_FILES = 4096
WAITING_SIGNALS = 256
"""The signals and timers that the user's processes together may have for this one to have another."""
MORE_THREADS = 512
"""The threads that the user's processes together may have more than there are when a process is confined."""

NO_FILES = "Code of the workspace can read, change and remove your files: the system has no Landlock."
NO_TRUNCATION = "Code of the workspace can empty your files: Landlock of this kernel does not know of truncation."
NO_NETWORK = "Code of the workspace can use the network and start programs: the system has no seccomp filters."
NOT_HERE = "Code of the workspace runs with your rights: this system has nothing to confine it that fx-lsp knows."
NO_SIGNALS = "Code of the workspace can end your programs: Landlock of this kernel does not know of signals."


@dataclass(frozen=True)
class Allowance:
    """What the user allows code of a workspace besides: paths to `reads`, and `programs` to start, by name."""

    reads: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


@dataclass
class _State:
    """Hold how far this process is confined, and what it may use."""

    scratch: str = ""
    allowance: Allowance = Allowance()
    reads: tuple[str, ...] = ()
    home: str = ""
    is_begun: bool = False
    is_entered: bool = False


_state = _State()


def begin(scratch: str, allowance: Allowance) -> tuple[str, ...]:
    """Confine this process from now on: it writes only below `scratch`, an existing folder, which becomes the folder
    for temporary files; it has no network, and starts only programs that are allowed. Returns the gaps.
    """
    allowance = Allowance(tuple(map(os.path.expanduser, allowance.reads)), allowance.programs)
    _state.scratch, _state.allowance, _state.is_begun = os.path.realpath(scratch), allowance, True
    _state.home = os.environ.get("HOME", "")
    _move_temporary_files(_state.scratch)
    _limit()
    if sys.platform == "darwin":
        return macos.confine(_state.scratch, _programs())
    if sys.platform != "linux":
        return (NOT_HERE,)
    _state.reads = tuple(readable.of_interpreter(_state.home))
    _move_home(_state.scratch, _shared())
    return (*_restrict(None), *_attempt(seccomp.forbid_network_and_privileges, NO_NETWORK))


def enter(roots: Sequence[str], *files: str, assembles: bool = False) -> None:
    """Confine this process to what the code of some files needs, before any of it runs.

    It reads the system, the interpreter, the project below `roots` and what the user allows, writes to a folder of its
    own, and starts no programs but those allowed by the user, and Triton's assemblers if it `assembles`. Does nothing
    if the process is confined so already, or has not begun to be.
    """
    if not _state.is_begun or _state.is_entered:
        return
    _state.is_entered = True
    scratch = os.path.join(_state.scratch, str(os.getpid()))
    os.makedirs(scratch, exist_ok=True)
    _move_temporary_files(scratch)
    if sys.platform == "linux":
        folders = readable.of_project(roots, files, _state.home)
        project = [*readable.narrowed(folders, _state.home)]
        shared, system = [*_shared(), *project], [*_state.reads, *readable.libraries(_state.home)]
        _move_home(scratch, shared)
        starts_programs = assembles or bool(_state.allowance.programs)
        reads = [*(readable.without_programs(system) if starts_programs else system), *shared]
        _restrict(reads, [folder for folder in folders if folder not in project])
        if not starts_programs:
            _attempt(seccomp.forbid_programs, "")


def leave_no_processes() -> None:
    """Forbid a confined process to start processes: it answers one request and ends."""
    if _state.is_entered and not _state.allowance.programs:
        _attempt(seccomp.forbid_processes, "")


def is_confined() -> bool:
    """Return True if this process has been confined by `begin`."""
    return _state.is_begun


def allowed_programs() -> tuple[str, ...]:
    """Return the names of the programs that the user allows code to start."""
    return _state.allowance.programs


def remove_scratch_of(pid: int) -> None:
    """Remove what a fork of this process, confined by `enter`, has written, once that has ended."""
    if _state.is_begun:
        remove_tree(os.path.join(_state.scratch, str(pid)))


def _shared() -> list[str]:
    """Return the paths in the user's home folder that code reads there as well."""
    return [*readable.downloads(_state.home), *_state.allowance.reads]


def _restrict(reads: Sequence[str] | None, lists: Sequence[str] = ()) -> tuple[str, ...]:
    """Restrict files: only `reads` can be read (None: all), and names of files below `lists`. Returns the gaps."""
    abi = landlock.version()
    if not abi:
        return NO_FILES, NO_SIGNALS
    scratch = tempfile.gettempdir()
    allowed = [(path, READ) for path in reads or ()] + [(path, FileAccess.READ_DIR) for path in lists]
    allowed += [(path, FileAccess.WRITE_FILE | READ) for path in readable.WRITABLE_DEVICES]
    allowed += [(path, FileAccess.EXECUTE | READ) for path in _programs()]
    handled = WRITE | FileAccess.EXECUTE | (READ if reads is not None else FileAccess(0))
    try:
        landlock.restrict(handled, [*allowed, (scratch, WRITE | READ)])
    except OSError:
        return NO_FILES, NO_SIGNALS
    gaps = {NO_TRUNCATION: landlock.NO_TRUNCATION, NO_SIGNALS: landlock.NO_SIGNALS}
    return tuple(gap for gap, since in gaps.items() if abi < since)


def _programs() -> list[str]:
    """Return the programs that may be started: Triton's assemblers, the user's, and what the system loads them with."""
    paths = [shutil.which(name) or "" for name in _state.allowance.programs]
    with suppress(ImportError, ValueError):
        spec = importlib.util.find_spec("triton")
        folders = (spec.submodule_search_locations or []) if spec is not None else []
        paths += [os.path.join(folder, "backends", "nvidia", "bin") for folder in folders]
    paths += [path for name, path in os.environ.items() if name.startswith("TRITON_") and name.endswith("_PATH")]
    loaders = [path for path in _LOADERS if os.path.exists(path)]
    return [path for path in map(os.path.realpath, filter(None, paths)) if os.path.exists(path)] + loaders


_LOADERS = (
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
)


def _move_temporary_files(folder: str) -> None:
    """Have this process and what it starts keep temporary files in a folder, and caches that variables say are in the
    folder of the process above."""
    for name, value in list(os.environ.items()):
        if value.startswith(_state.scratch + os.sep):
            os.environ[name] = folder + value[len(_state.scratch) :]
    for name in ("TMPDIR", "TEMP", "TMP"):
        os.environ[name] = folder
    tempfile.tempdir = folder


def _move_home(folder: str, shared: Sequence[str]) -> None:
    """Give code an empty home folder, in which links lead to `shared` paths of the real one.

    So code finds no file there that it may not read: it goes on as on a new account.
    """
    if not _state.home:
        return
    home, real = os.path.join(folder, "home"), os.path.realpath(_state.home)
    os.makedirs(home, exist_ok=True)
    for path in map(os.path.realpath, shared):
        if path.startswith(real + os.sep):
            link = os.path.join(home, os.path.relpath(path, real))
            os.makedirs(os.path.dirname(link), exist_ok=True)
            with suppress(OSError):
                os.symlink(path, link)
    os.environ["HOME"] = home
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        os.environ.pop(name, None)


def _limit() -> None:
    """Limit the size of files, and the numbers of open files, signals and threads, as far as the platform can."""
    with suppress(ImportError):
        import resource

        with suppress(OSError, ValueError, AttributeError):
            _lower(resource.RLIMIT_FSIZE, FILE_BYTES)
        with suppress(OSError, ValueError, AttributeError):
            _lower(resource.RLIMIT_NOFILE, OPEN_FILES)
        with suppress(OSError, ValueError, AttributeError):
            _lower(resource.RLIMIT_SIGPENDING, WAITING_SIGNALS)
        with suppress(OSError, ValueError, AttributeError, IndexError):
            with open("/proc/loadavg", encoding="ascii") as stream:
                threads = int(stream.read().split()[3].partition("/")[2])
            _lower(resource.RLIMIT_NPROC, threads + MORE_THREADS)


def _lower(limit: int, value: int) -> None:
    import resource

    bounds = [bound for bound in (value, *resource.getrlimit(limit)) if bound != resource.RLIM_INFINITY]
    resource.setrlimit(limit, (min(bounds), min(bounds)))


def _attempt(restriction: Callable[[], None], gap: str) -> tuple[str, ...]:
    """Restrict this process; return the gap if that is not possible here."""
    try:
        if seccomp.supported():
            restriction()
            return ()
    except (OSError, AttributeError):
        pass
    return (gap,)
