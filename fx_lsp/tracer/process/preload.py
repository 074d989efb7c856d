"""Imports that a worker does before any request: torch, and third-party packages by name."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import signal
import sys
import threading
import traceback
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

from fx_lsp.tracer.program.installed import package_files
from fx_lsp.tracer.program.paths import is_installed
from fx_lsp.tracer.program.reads import ReadState, reads, state_of, watch_reads

PRELOAD_SECONDS = 30


class Unusable(Exception):
    """This interpreter cannot trace. `kind` is the `Failure.kind` to show."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


@contextmanager
def _uncollected() -> Generator[None]:
    """Inside, no garbage is collected: imports make much that stays and little garbage."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_uncollected()
def import_torch() -> str:
    """Import torch and the modules that every trace needs, and return torch's version. Raises Unusable.

    Functions that `functools.lru_cache` decorates afterwards are the user's.
    """
    if importlib.util.find_spec("torch") is None:
        raise Unusable(f"{sys.executable} has no torch", "no-torch")
    try:
        importlib.import_module("torch")
        from fx_lsp.tracer.process.warmup import import_modules
        from fx_lsp.tracer.run.lru_caches import remember_caches

        import_modules()
        remember_caches()
        watch_reads()
    except Exception as error:
        if isinstance(error, ImportError) and (error.name or "").startswith("fx_lsp"):
            raise
        traceback.print_exc()
        raise Unusable(f"torch in {sys.executable} does not import: {_one_line(error)}", "no-torch") from error
    return str(getattr(sys.modules.get("torch"), "__version__", ""))


def settle() -> None:
    """Trace once, import the modules that some traces need, and exempt all objects from garbage collection.

    A trace that cannot wait for this takes longer by what it needs of it.
    """
    from fx_lsp.tracer.process.warmup import warm
    from fx_lsp.tracer.run.lru_caches import caches_of_torch

    with _uncollected(), caches_of_torch():
        warm()
    gc.collect()
    gc.freeze()


@_uncollected()
def import_packages(names: Iterable[str]) -> None:
    """Import modules of installed packages; whatever one of them raises, prints or waits for (at most 30 s) is ignored.

    A process with code of a workspace names them: a module from elsewhere is not imported.
    """
    for name in names:
        if name not in sys.modules:
            try:
                with _Alarm(PRELOAD_SECONDS):
                    if _is_of_package(name):
                        importlib.import_module(name)
            except BaseException as error:
                print(f"preload of {name}: {_one_line(error)}", file=sys.stderr)


def _is_of_package(name: str) -> bool:
    spec = importlib.util.find_spec(name.partition(".")[0])
    places = [] if spec is None else [*(spec.submodule_search_locations or [spec.origin or ""])]
    return bool(places) and all(map(is_installed, places))


def read_states() -> dict[str, ReadState]:
    """Return the states of the files that imports have read so far: of torch, of packages, and what these have read."""
    version = sys.modules.get("torch.version")
    files = [*package_files(), *([version.__file__] if version is not None and version.__file__ else [])]
    return {**{file: state_of(file) for file in files}, **reads().news()}


def count_threads() -> int:
    """Return the number of threads of this process, also those unknown to Python where the platform tells."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count()


class _Alarm:
    """Raise TimeoutError in the main thread after `seconds` (where the platform has timers)."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __enter__(self) -> None:
        if sys.platform != "win32":
            self._before = signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def __exit__(self, *exc: object) -> None:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)

    def _ring(self, *_: object) -> None:
        raise TimeoutError(f"longer than {self._seconds:g} s")


def _one_line(error: BaseException) -> str:
    lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    return lines[-1] if lines else type(error).__name__
