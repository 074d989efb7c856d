"""What was measured before, in one SQLite file of the user's: reports by target."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fx_lsp.errors import ProtocolError
from fx_lsp.measured import BenchmarkRun, Report
from fx_lsp.tracing.analysis import Plan
from fx_lsp.tracing.answers.disk import Dependency, default_cache_path, is_fresh
from fx_lsp.wire import from_json, to_json

MAX_RUNS = 200
"""How many runs of one target are kept."""
_VERSION = 2
_LOCK_SECONDS = 5.0


@dataclass(frozen=True)
class StoredRun:
    """A run, and the files of the project that its target imported."""

    run: BenchmarkRun
    imports: tuple[Dependency, ...] = ()

    def as_of(self, plan: Plan | None, texts: Mapping[str, str]) -> BenchmarkRun:
        """The run, stale where the target or what it imports is not what was measured: `plan` is how the target would
        be traced now, None where it is gone, and `texts` are those of open files."""
        same = plan is not None and self.run.report.source_hash == source_hash(plan) and is_fresh(self.imports, texts)
        return replace(self.run, stale=not same)


def default_history_path() -> Path:
    """Return where benchmarks are stored for this user: beside the cache of traces."""
    return Path(default_cache_path()).with_name("benchmarks.sqlite3")


def source_hash(plan: Plan) -> str:
    """Return a hash of the source that a target reaches, without blank lines and comments; hexadecimal."""
    return hashlib.sha256(f"{plan.target.name}\n{plan.slice.fingerprint}".encode()).hexdigest()


def keep(run: BenchmarkRun, imports: Sequence[Dependency] = (), path: Path | None = None) -> None:
    """Add a run of a target that imports these files. Raises OSError or sqlite3.Error where it cannot be kept."""
    with closing(_opened(path or default_history_path())) as connection, connection:
        data = zlib.compress(json.dumps(to_json(run.report), separators=(",", ":")).encode())
        row = (run.file, run.target, run.host, run.report.started, data, json.dumps([asdict(one) for one in imports]))
        connection.execute(
            "INSERT INTO runs (file, target, host, started, report, imports) VALUES (?, ?, ?, ?, ?, ?)", row
        )
        connection.execute(
            "DELETE FROM runs WHERE file = ?1 AND target = ?2 AND id NOT IN "
            "(SELECT id FROM runs WHERE file = ?1 AND target = ?2 ORDER BY started DESC LIMIT ?3)",
            (run.file, run.target, MAX_RUNS),
        )


def runs_of(file: str, target: str | None = None, path: Path | None = None) -> list[StoredRun]:
    """Return the runs of a target, or of all targets of a file, the oldest first.

    Nothing where nothing can be read; a report of another version of fx-lsp is left out.
    """
    where = path or default_history_path()
    if not where.exists():
        return []
    try:
        with closing(_opened(where)) as connection:
            rows = connection.execute(
                "SELECT target, host, report, imports FROM runs "
                "WHERE file = ?1 AND (?2 IS NULL OR target = ?2) ORDER BY started",
                (file, target),
            ).fetchall()
    except (OSError, sqlite3.Error):
        return []
    return [
        StoredRun(BenchmarkRun(file, name, host, report), tuple(Dependency(**one) for one in json.loads(imports)))
        for name, host, data, imports in rows
        if (report := _report(data)) is not None
    ]


def _report(data: bytes) -> Report | None:
    try:
        return from_json(Report, json.loads(zlib.decompress(data)))
    except (ValueError, zlib.error, ProtocolError):
        return None


def _opened(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_LOCK_SECONDS)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == 1:
            connection.execute("ALTER TABLE runs ADD COLUMN imports TEXT NOT NULL DEFAULT '[]'")
        elif version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"{path} was written by another version of fx-lsp (format {version})")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, file TEXT NOT NULL, target TEXT NOT NULL, host TEXT NOT NULL,
    started REAL NOT NULL, report BLOB NOT NULL, imports TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS by_target ON runs (file, target, started);
PRAGMA user_version = {_VERSION};
"""
