"""Store earlier benchmarks, in one SQLite file of the user: reports by target."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from fx_lsp import folders
from fx_lsp.errors import ForeignFileError, ProtocolError
from fx_lsp.measured import BenchmarkRun, Report
from fx_lsp.tracing.analysis import Plan
from fx_lsp.tracing.answers.database import DatabaseFormat, connect, mark, set_aside, version_of
from fx_lsp.tracing.answers.disk import Dependency, is_fresh
from fx_lsp.wire import pack, parse, to_json, unpack

log = logging.getLogger(__name__)

MAX_RUNS = 200
"""The most stored runs of one target."""
RUNS = DatabaseFormat(
    name="benchmarks.sqlite3",
    holds="benchmarks of fx-lsp",
    application=0x66784265,
    version=2,
    schema=(
        """CREATE TABLE runs (
            id INTEGER PRIMARY KEY, file TEXT NOT NULL, target TEXT NOT NULL, host TEXT NOT NULL,
            started REAL NOT NULL, report BLOB NOT NULL, imports TEXT NOT NULL
        )""",
        "CREATE INDEX by_target ON runs (file, target, started)",
    ),
    columns={"runs": frozenset({"id", "file", "target", "host", "started", "report"})},
)
"""The format of the file of benchmarks."""
_LOCK_SECONDS = 5.0


@dataclass(frozen=True)
class StoredRun:
    """Hold a run, and the files of the project that its target imported."""

    run: BenchmarkRun
    imports: tuple[Dependency, ...] = ()

    def as_of(self, plan: Plan | None, texts: Mapping[str, str]) -> BenchmarkRun:
        """Return the run, marked stale if the target or its imports differ from the measured ones. `plan` is the
        target's current plan, None if it is gone, and `texts` are those of open files.
        """
        same = plan is not None and self.run.report.source_hash == source_hash(plan) and is_fresh(self.imports, texts)
        return replace(self.run, stale=not same)


def default_history_path() -> Path:
    """Return the path of this user's benchmarks: next to the cache of traces."""
    return folders.cache_folder() / RUNS.name


def source_hash(plan: Plan) -> str:
    """Return a hash of the source that a target reaches, without blank lines and comments; hexadecimal."""
    return hashlib.sha256(f"{plan.target.name}\n{plan.slice.fingerprint}".encode()).hexdigest()


def keep(run: BenchmarkRun, imports: Sequence[Dependency] = (), path: Path | None = None) -> None:
    """Store a run of a target that imports these files. Raises OSError or sqlite3.Error on failure."""
    data, imported = pack(run.report), json.dumps(to_json(tuple(imports)))
    row = (run.file, run.target, run.host, run.report.started, data, imported)
    with closing(_opened(path or default_history_path())) as connection, connection:
        connection.execute("BEGIN IMMEDIATE")
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

    Returns nothing if the file is unreadable; reports of another version of fx-lsp are left out.
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
    runs = (_run(file, *row) for row in rows)
    return [run for run in runs if run is not None]


def _run(file: str, target: str, host: str, report: bytes, imports: str) -> StoredRun | None:
    """Return a stored run; None if another version stored it, or if it is damaged."""
    try:
        return StoredRun(
            BenchmarkRun(file, target, host, unpack(Report, report)), parse(tuple[Dependency, ...], imports)
        )
    except ProtocolError:
        return None


def _opened(path: Path) -> sqlite3.Connection:
    """Open the history; a damaged one is set aside and replaced by a new one. Raises sqlite3.Error and OSError."""
    for _ in range(2):
        connection = connect(path, RUNS, _LOCK_SECONDS)
        try:
            version = version_of(connection)
            if version > RUNS.version:
                raise ForeignFileError(errno.EEXIST, f"a newer fx-lsp has written it (format {version})", str(path))
            if version < RUNS.version:
                connection.execute("ALTER TABLE runs ADD COLUMN imports TEXT NOT NULL DEFAULT '[]'")
                connection.execute(f"PRAGMA user_version = {RUNS.version}")
            mark(connection, RUNS)
            return connection
        except sqlite3.OperationalError:
            connection.close()
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: a message that quotes damaged bytes
            connection.close()
            log.warning("%s could not be read (%s); it was moved to %s", path, error, set_aside(path, RUNS))
        except BaseException:
            connection.close()
            raise
    raise sqlite3.DatabaseError(f"{path} cannot be begun")
