"""Store traces on disk, in one SQLite file that several servers may share. Never raises: a cache that fails is
a miss.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

from fx_lsp import files, folders
from fx_lsp.errors import ProtocolError
from fx_lsp.model import (
    Compiled,
    Failure,
    Outcome,
    Span,
    TargetKind,
    Trace,
    TraceReply,
    WrittenInputs,
    asked_variable,
    is_listing,
)
from fx_lsp.tracing.answers.database import DatabaseFormat, connect, set_aside, version_of
from fx_lsp.wire import deflate, inflate, pack, unpack

T = TypeVar("T")
log = logging.getLogger(__name__)

TRACES = DatabaseFormat(
    name="traces.sqlite3",
    holds="traces of fx-lsp",
    application=0x66785472,
    version=3,
    schema=(
        """CREATE TABLE traces (
            key TEXT PRIMARY KEY, answer BLOB NOT NULL, bytes INTEGER NOT NULL, used REAL NOT NULL
        ) WITHOUT ROWID""",
        "CREATE TABLE stages (key TEXT NOT NULL, name TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (key, name))",
        "CREATE INDEX by_use ON traces (used)",
    ),
    columns={
        "traces": frozenset({"key", "bytes", "used"}),
        "stages": frozenset({"key", "name", "data"}),
    },
)
"""The format of the file of answers."""
_LOCK_SECONDS = 0.5
_REST_SECONDS = 10.0
_NOT_STORED = frozenset({"timeout", "memory", "crash", "internal", "interpreter", "no-torch", "import"})


@dataclass(frozen=True)
class Dependency:
    """Hold a file that an answer depends on: the hash of its text, and its time and size if it was read from disk.

    `path` may also be a dependency of another kind, as in `TraceReply`.
    """

    path: str
    digest: str
    mtime_ns: int = -1
    size: int = -1


@dataclass(frozen=True)
class CachedTrace:
    """Hold an answer without its stages. `lines` are the target's significant lines when it was traced.

    An answer that is not `final` is correct, and a more complete one is still computed.
    """

    outcome: Outcome
    lines: tuple[int, ...]
    dependencies: tuple[Dependency, ...]
    packages: tuple[str, ...] = ()
    final: bool = True


@dataclass(frozen=True)
class _StoredAnswer:
    """Hold a `CachedTrace` in its form on disk: with a trace or a failure."""

    trace: Trace | None
    failure: Failure | None
    lines: tuple[int, ...]
    dependencies: tuple[Dependency, ...]
    packages: tuple[str, ...]

    @property
    def answer(self) -> CachedTrace:
        """Return the stored answer. Raises ProtocolError if it has neither a trace nor a failure."""
        outcome = self.trace or self.failure
        if outcome is None:
            raise ProtocolError("a stored answer with neither a trace nor a failure")
        return CachedTrace(outcome, self.lines, self.dependencies, self.packages)


class UnsavedTexts(Protocol):
    """Provide texts that are newer than those on disk."""

    def get(self, path: str, /) -> str | None:
        """Return the text of a file, or of a part that an answer depends on; None if the file on disk applies."""


UNKNOWN = "unknown"
"""The digest of a file that changed while it was read."""
HASHED_BYTES = 1 << 20
"""The size up to which the content of a file counts; of a larger one, its time and size do."""
_FOLDER = "folder"
"""The digest of a folder of which only the existence matters."""


@dataclass(frozen=True, kw_only=True)
class AnswerConditions:
    """Hold everything that changes an answer but is not a dependency.

    `file` is one of them because an answer's spans name it; spans of written inputs count without their line.
    """

    file: str
    fingerprint: str
    name: str
    kind: TargetKind
    evident: bool
    compiled: Compiled
    module: str
    package: str
    inputs: Sequence[WrittenInputs]
    interpreter: str
    version: str
    search_seconds: float
    roots: Sequence[str]

    def key(self) -> str:
        """Return a hexadecimal hash of the conditions."""
        written = [[g.text, g.source, g.detail, _extent(g.span)] for g in self.inputs]
        asked = [self.file, self.fingerprint, self.name, self.kind, self.evident, self.compiled]
        asked += [self.module, self.package, written]
        parts = [*asked, self.interpreter, self.version, self.search_seconds, list(self.roots)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _extent(span: Span | None) -> list[int] | None:
    return None if span is None else [span.end_line - span.line, span.col, span.end_col]


def default_cache_path() -> str:
    """Return the path of this user's traces: `fx-lsp/traces.sqlite3` in the platform's cache directory."""
    return str(folders.cache_folder() / TRACES.name)


def read_dependencies(paths: Sequence[str], texts: UnsavedTexts, since: float = math.inf) -> tuple[Dependency, ...]:
    """Return the state of files, from unsaved `texts` or else the disk. A missing file has the digest "".

    A file written after `since` (seconds since the epoch) gets a digest that no file has, because it is unknown which
    of its texts was read.
    """
    dependencies = (_read_dependency(path, texts) for path in paths)
    now = time.time()
    return tuple(
        replace(d, digest=UNKNOWN, mtime_ns=-1) if since < d.mtime_ns / 1e9 <= now else d for d in dependencies
    )


def is_fresh(
    dependencies: Sequence[Dependency], texts: UnsavedTexts, verdicts: dict[Dependency, bool] | None = None
) -> bool:
    """Return True if every file still has the same text; time and size are compared first.

    `verdicts` has those of the same moment on dependencies of other answers, and gets the new ones.
    """
    verdicts = {} if verdicts is None else verdicts
    for dependency in dependencies:
        if dependency not in verdicts:
            verdicts[dependency] = _is_unchanged(dependency, texts)
        if not verdicts[dependency]:
            return False
    return True


def _is_unchanged(dependency: Dependency, texts: UnsavedTexts) -> bool:
    if dependency.mtime_ns >= 0 and texts.get(dependency.path) is None:
        try:
            status = files.status_of(dependency.path)
        except OSError:
            return False
        if status is not None and (status.st_mtime_ns, status.st_size) == (dependency.mtime_ns, dependency.size):
            return True
    return _read_dependency(dependency.path, texts).digest == dependency.digest


def is_storable(outcome: Outcome) -> bool:
    """Return True if the same text would give the same answer later; False for a time limit, or for a package whose
    import raises: what it lacks may be a library of the system.

    The answer about a missing module depends on the folders in which it was looked for.
    """
    return not isinstance(outcome, Failure) or outcome.kind not in _NOT_STORED or _is_about_module(outcome)


def _is_about_module(failure: Failure) -> bool:
    return failure.kind == "import" and failure.missing_module != ""


class Cache:
    """Store a bounded number of traces. All methods may be called from any thread; none raises.

    `path` is None for no cache. `max_bytes` bounds the stored bytes; the least recently used answers are removed first.
    A damaged file, or one of another version, is renamed `<name>.broken-<n>` and replaced by a new one; a foreign file
    is never touched.
    """

    def __init__(self, path: str | None, max_bytes: int = 512 << 20, clock: Callable[[], float] = time.time) -> None:
        self._path = Path(path) if path else None
        self._max_bytes = max_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0
        self._warned = False
        self._resting_until = 0.0
        self.trouble = ""
        """The reason why nothing is stored on disk, or ""."""

    def get(self, key: str, texts: UnsavedTexts, verdicts: dict[Dependency, bool] | None = None) -> CachedTrace | None:
        """Return the answer stored under `key`, if all its dependencies are unchanged; else None. `verdicts` as in
        `is_fresh`.
        """
        answer = self._attempt(lambda connection: _select(connection, key))
        if answer is None or not is_fresh(answer.dependencies, texts, verdicts):
            return None
        self._write(lambda connection: _note_use(connection, key, self._clock()))
        return answer

    def stage(self, key: str, name: str) -> bytes | None:
        """Return the encoded stage `name` of the answer under `key`."""

        def select(connection: sqlite3.Connection) -> bytes | None:
            row = connection.execute("SELECT data FROM stages WHERE key = ? AND name = ?", (key, name)).fetchone()
            return row and _readable(lambda: inflate(row[0]))

        return self._attempt(select)

    def put(self, key: str, reply: TraceReply, lines: Sequence[int], dependencies: Sequence[Dependency]) -> bool:
        """Store an answer under `key`, unless it may not be reproducible; return True if it is stored."""
        if not is_storable(reply.outcome):
            return False
        trace, failure = (reply.outcome, None) if isinstance(reply.outcome, Trace) else (None, reply.outcome)
        answer = pack(_StoredAnswer(trace, failure, tuple(lines), tuple(dependencies), tuple(reply.packages)))
        stages = [(key, name, deflate(data)) for name, data in reply.stages.items()]
        row = (key, answer, len(answer) + sum(len(data) for _, _, data in stages), self._clock())
        return self._write(lambda connection: self._insert(connection, row, stages))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._disconnect()
            self._path = None

    def _insert(
        self,
        connection: sqlite3.Connection,
        row: tuple[str, bytes, int, float],
        stages: list[tuple[str, str, bytes]],
    ) -> bool:
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("DELETE FROM stages WHERE key = ?", (row[0],))
            connection.execute("INSERT OR REPLACE INTO traces VALUES (?, ?, ?, ?)", row)
            connection.executemany("INSERT INTO stages VALUES (?, ?, ?)", stages)
            self._evict(connection)
        connection.execute("PRAGMA incremental_vacuum").fetchall()
        return True

    def _evict(self, connection: sqlite3.Connection) -> None:
        (total,) = connection.execute("SELECT coalesce(sum(bytes), 0) FROM traces").fetchone()
        if total <= self._max_bytes:
            return
        for key, size in connection.execute("SELECT key, bytes FROM traces ORDER BY used").fetchall():
            connection.execute("DELETE FROM traces WHERE key = ?", (key,))
            connection.execute("DELETE FROM stages WHERE key = ?", (key,))
            total -= size
            if total <= self._max_bytes * 0.9:
                return

    def _write(self, action: Callable[[sqlite3.Connection], bool]) -> bool:
        """Run `action`, which returns True if it has written: then the file is no longer locked."""
        written = bool(self._attempt(action))
        if written:
            self.trouble = ""
        return written

    def _attempt(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run `action`. A damaged file is set aside and `action` retried once; any other error is a miss."""
        with self._lock:
            for _ in range(2):
                if self._path is None or time.monotonic() < self._resting_until:
                    return None
                try:
                    if self._connection is None:
                        self._connect(self._path)
                    assert self._connection is not None, "connected just now"
                    return action(self._connection)
                except sqlite3.OperationalError as error:
                    if _is_busy(error):
                        self._rest(error)
                    else:
                        self._turn_off(error)
                    return None
                except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: a message that quotes damaged bytes
                    self._set_aside(error)
                except OSError as error:
                    self._turn_off(error)
                    return None
            return None

    def _connect(self, path: Path) -> None:
        connection = connect(path, TRACES, _LOCK_SECONDS)
        self._connection, self._inode = connection, path.stat().st_ino
        connection.execute("PRAGMA synchronous = OFF")
        if (version := version_of(connection)) != TRACES.version:
            raise sqlite3.DatabaseError(f"written by another version of fx-lsp (format {version})")

    def _disconnect(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error:
                log.debug("closing a damaged cache failed", exc_info=True)
            self._connection = None

    def _set_aside(self, error: Exception) -> None:
        path = self._path
        assert path is not None, "only called for an open cache"
        self._disconnect()
        try:
            if path.stat().st_ino != self._inode:
                return  # another server has set it aside already
            aside = set_aside(path, TRACES)
            self._warn(
                f"the trace cache could not be read ({error}); it was moved to {aside}, and a new one was created"
            )
        except OSError as failed:
            self._turn_off(failed)

    def _rest(self, error: sqlite3.OperationalError) -> None:
        """Stop using a file locked by another process for a while, because every attempt waits for the lock."""
        self.trouble = f"traces are not stored on disk at the moment: {self._path}: {error}"
        log.info("the trace cache is not used for %g s: %s", _REST_SECONDS, error)
        self._resting_until = time.monotonic() + _REST_SECONDS
        self._disconnect()

    def _turn_off(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or error
        self.trouble = f"traces are not stored on disk in this session: {self._path}: {reason}"
        self._warn(self.trouble)
        self._disconnect()
        self._path = None

    def _warn(self, message: str) -> None:
        log.log(logging.DEBUG if self._warned else logging.WARNING, "%s", message)
        self._warned = True


def _select(connection: sqlite3.Connection, key: str) -> CachedTrace | None:
    row = connection.execute("SELECT answer FROM traces WHERE key = ?", (key,)).fetchone()
    return row and _readable(lambda: unpack(_StoredAnswer, row[0]).answer)


def _readable(read: Callable[[], T]) -> T | None:
    """Return the result of `read` on a stored value; None, a miss, if the value has another shape."""
    try:
        return read()
    except ProtocolError as error:
        log.info("a stored answer is ignored: %s", error)
        return None


def _note_use(connection: sqlite3.Connection, key: str, now: float) -> bool:
    try:
        connection.execute("UPDATE traces SET used = ? WHERE key = ?", (now, key))
        return True
    except sqlite3.OperationalError as error:
        if _is_busy(error):
            raise
        log.debug("the use of a cached trace could not be recorded: %s", error)  # a read-only file can still be read
        return False


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return "locked" in str(error) or "busy" in str(error)


def _read_dependency(path: str, texts: UnsavedTexts) -> Dependency:
    text = texts.get(path)
    if text is not None:
        return Dependency(path, _digest(text.encode("utf-8", "surrogatepass")))
    if (variable := asked_variable(path)) is not None:
        value = os.environ.get(variable)
        return Dependency(
            path, "" if value is None else _digest(f"{variable}={value}".encode("utf-8", "surrogateescape"))
        )
    try:
        status = files.status_of(path)
    except OSError:
        status = None
    if status is None:
        return Dependency(path, "")
    if stat.S_ISDIR(status.st_mode) and not is_listing(path):
        return Dependency(path, _FOLDER)
    return Dependency(path, _digest_of_file(path, status), status.st_mtime_ns, status.st_size)


def _digest_of_file(path: str, status: os.stat_result) -> str:
    """Return the digest of the names in a folder, or of the content of a file; of a large file, its time and size."""
    try:
        if is_listing(path):
            return _digest("\0".join(files.names_in(path)).encode("utf-8", "surrogateescape"))
        if status.st_size <= HASHED_BYTES:
            return _digest(files.read_bytes(path))
    except OSError as error:
        return f"not read: {error.errno}, {status.st_mtime_ns}, {status.st_size}"
    return f"large: {status.st_mtime_ns}, {status.st_size}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
