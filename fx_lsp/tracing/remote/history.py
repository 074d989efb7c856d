"""What was measured before, in one SQLite file of the user's: reports by target."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from contextlib import closing
from pathlib import Path

from fx_lsp.errors import ProtocolError
from fx_lsp.measured import Report, Run
from fx_lsp.tracing.analysis import Plan
from fx_lsp.tracing.cache import default_cache_path
from fx_lsp.wire import from_json, to_json

KEPT = 200
"""How many runs of one target are kept."""
_VERSION = 1
_LOCK_SECONDS = 5.0


def default_history_path() -> Path:
    """Where benchmarks are kept for this user: beside the cache of traces."""
    return Path(default_cache_path()).with_name("benchmarks.sqlite3")


def source_hash(plan: Plan) -> str:
    """A hash of the source that a target reaches, without blank lines and comments; hexadecimal."""
    return hashlib.sha256(f"{plan.target.name}\n{plan.slice.fingerprint}".encode()).hexdigest()


def is_stale(report: Report, plan: Plan) -> bool:
    """Whether a report is about another source than the present one."""
    return report.source_hash != source_hash(plan)


def keep(run: Run, path: Path | None = None) -> None:
    """Add a run. Raises OSError or sqlite3.Error where it cannot be kept."""
    with closing(_opened(path or default_history_path())) as connection, connection:
        data = zlib.compress(json.dumps(to_json(run.report), separators=(",", ":")).encode())
        row = (run.file, run.target, run.host, run.report.started, data)
        connection.execute("INSERT INTO runs (file, target, host, started, report) VALUES (?, ?, ?, ?, ?)", row)
        connection.execute(
            "DELETE FROM runs WHERE file = ?1 AND target = ?2 AND id NOT IN "
            "(SELECT id FROM runs WHERE file = ?1 AND target = ?2 ORDER BY started DESC LIMIT ?3)",
            (run.file, run.target, KEPT),
        )


def runs_of(file: str, target: str | None = None, path: Path | None = None) -> list[Run]:
    """The runs of a target, or of all targets of a file, the oldest first.

    Nothing where nothing can be read; a report of another version of fx-lsp is left out.
    """
    where = path or default_history_path()
    if not where.exists():
        return []
    try:
        with closing(_opened(where)) as connection:
            rows = connection.execute(
                "SELECT target, host, report FROM runs "
                "WHERE file = ?1 AND (?2 IS NULL OR target = ?2) ORDER BY started",
                (file, target),
            ).fetchall()
    except (OSError, sqlite3.Error):
        return []
    return [Run(file, name, host, report) for name, host, data in rows if (report := _report(data)) is not None]


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
        if version not in (0, _VERSION):
            raise sqlite3.DatabaseError(f"{path} was written by another version of fx-lsp (format {version})")
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY, file TEXT NOT NULL, target TEXT NOT NULL, host TEXT NOT NULL,
    started REAL NOT NULL, report BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS by_target ON runs (file, target, started);
PRAGMA user_version = {_VERSION};
"""
