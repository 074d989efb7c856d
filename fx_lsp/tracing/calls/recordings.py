"""Read the calls recorded by `fx-lsp record`: for each project a directory of files, one JSON object a line.
    <cache>/recorded/<hash of the project's root>/<start of the run>-<process>.jsonl     while a run lasts
    <cache>/recorded/<hash of the project's root>/<start of the run>.jsonl               afterwards
A line has the `file` (relative to the root), the `name` of the target, the `text` of the call (as in a `# fx:` comment)
and the `command`. Unreadable lines are ignored: a run may have been killed while it wrote.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path

from fx_lsp import files, folders
from fx_lsp.errors import ProtocolError
from fx_lsp.model import WrittenInputs
from fx_lsp.wire import parse

PER_TARGET = 3
"""The most calls of one target that a tracer gets."""
KEPT_RUNS = 8
"""The number of runs that are kept whole; of older runs only the calls for tracers stay."""
MAX_RUN_BYTES = 64 << 20
"""The largest file of a run that is read."""
_OLD = "0.jsonl"


@dataclass(frozen=True)
class RecordedCall:
    """One call of a target: `file` is relative to the project's root, with slashes."""

    file: str
    name: str
    text: str
    command: str


def recorded_calls(file: str, base: str | None = None) -> Mapping[str, tuple[WrittenInputs, ...]]:
    """Return the recorded calls of a file's targets, by name, from any root directory above it.

    The newest run comes first. `base` is the folder of recordings. Only changed files are read again.
    """
    path, kept = Path(os.path.realpath(file)), base or default_base()
    by_name: dict[str, tuple[WrittenInputs, ...]] = {}
    for root in path.parents:
        recorded = recordings(str(root), kept)
        here = path.relative_to(root).as_posix() if recorded else ""
        for (where, name), inputs in recorded.items():
            if where == here:
                nearer = by_name.get(name, ())
                more = (g for g in inputs if all(g.text != other.text for other in nearer))
                by_name[name] = (*nearer, *more)[:PER_TARGET]
    return by_name


def recordings(root: str, base: str | None = None) -> Mapping[tuple[str, str], tuple[WrittenInputs, ...]]:
    """Return the calls recorded with `root` as the project's root, by file (relative to it) and name, newest first."""
    store = f"{base or default_base()}{os.sep}{_digest(root)}"
    try:
        states = [(entry.name, entry.stat()) for entry in os.scandir(store) if entry.name.endswith(".jsonl")]
    except OSError:
        return {}
    return _recordings(store, tuple(sorted((name, s.st_mtime_ns, s.st_size) for name, s in states)))


@lru_cache(maxsize=32)
def _recordings(
    store: str, states: tuple[tuple[str, int, int], ...]
) -> Mapping[tuple[str, str], tuple[WrittenInputs, ...]]:
    by_target: dict[tuple[str, str], tuple[WrittenInputs, ...]] = {}
    for call in _offered(Path(store, name) for name, _, _ in states):
        written = WrittenInputs(call.text, "recorded", detail=f"from `{call.command}`")
        by_target[call.file, call.name] = (*by_target.get((call.file, call.name), ()), written)
    return by_target


def default_base() -> str:
    """Return the folder of this user's recordings: `fx-lsp/recorded` in the platform's cache directory."""
    return str(folders.cache_folder() / "recorded")


def store_of(root: str, base: str | None = None) -> Path:
    """Return the directory that holds the recordings of the project at `root`."""
    return Path(base or default_base(), _digest(root))


@lru_cache(maxsize=1024)
def _digest(root: str) -> str:
    return hashlib.sha256(os.path.realpath(root).encode("utf-8", "surrogateescape")).hexdigest()[:32]


def new_run() -> str:
    """Return a name for a run that begins now; names sort in order of time."""
    return datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%f")


def run_files(store: Path, run: str) -> list[Path]:
    """Return the files of a run, one for each process that has imported torch, in order of start."""
    files = [path for path in store.glob("*.jsonl") if _run_of(path) == run]
    return sorted(files, key=lambda path: (path.stat().st_mtime_ns, path.name))


def read_calls(files: Iterable[Path]) -> list[RecordedCall]:
    """Return the distinct calls in `files`, in their order."""
    return list(dict.fromkeys(call for file in files for call in _read(file)))


def settle(store: Path, run: str, root: str) -> None:
    """End a run: merge its files into one, and thin out runs beyond `KEPT_RUNS`. Raises OSError."""
    parts = run_files(store, run)
    _replace(store / f"{run}.jsonl", read_calls(parts), parts)
    runs = sorted({_run_of(path) for path in store.glob("*.jsonl")} - {_run_of(Path(_OLD))})
    old = [path for path in store.glob("*.jsonl") if _run_of(path) not in runs[-KEPT_RUNS:]]
    if len(old) > 1 or (old and old[0].name != _OLD):
        _replace(store / _OLD, [call for call in _offered(old) if (Path(root) / call.file).exists()], old)


def _offered(files: Iterable[Path]) -> Iterator[RecordedCall]:
    """Yield the calls for tracers, the newest run first."""
    counts: dict[tuple[str, str], set[str]] = {}
    for path in sorted(files, key=lambda path: (_run_of(path), path.name), reverse=True):
        for call in _read(path):
            texts = counts.setdefault((call.file, call.name), set())
            if call.text not in texts and len(texts) < PER_TARGET:
                texts.add(call.text)
                yield call


def _replace(path: Path, calls: list[RecordedCall], parts: list[Path]) -> None:
    """Replace the files `parts`, of which `path` may be one, by `calls`."""
    if calls:
        files.write(path, "".join(f"{json.dumps(asdict(call))}\n" for call in calls))
    for part in parts:
        if part != path or not calls:
            part.unlink(missing_ok=True)


def _run_of(path: Path) -> str:
    return path.name.removesuffix(".jsonl").partition("-")[0]


def _read(path: Path) -> Iterator[RecordedCall]:
    try:
        lines = files.read_bytes(path, MAX_RUN_BYTES).splitlines()
    except OSError:
        return
    for line in lines:
        with suppress(ProtocolError):
            yield parse(RecordedCall, line)
