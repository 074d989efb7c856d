"""What was measured before, in one SQLite file of the user's: reports by target, and what changed between them."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from fx_lsp.errors import ProtocolError
from fx_lsp.measured import CLOCKS, Measured, Report, Timing
from fx_lsp.tracing.analysis import Plan
from fx_lsp.tracing.cache import default_cache_path
from fx_lsp.wire import from_json, to_json

KEPT = 200
"""How many runs of one target are kept."""
LEAST_CHANGE = 0.02
"""What has to change, beyond the noise, for a time to count as another."""
_VERSION = 1
_LOCK_SECONDS = 5.0


@dataclass(frozen=True)
class Run:
    """One benchmark of a target that was kept. `host` is the user's name for the machine."""

    file: str
    target: str
    host: str
    report: Report


@dataclass(frozen=True)
class Place:
    """What a time is of: only times of the same place can be compared."""

    gpu: str
    label: str
    inputs: tuple[str, ...]
    variant: str
    what: str
    clock: str


@dataclass(frozen=True)
class Change:
    """A time that differs from the one before it by more than their noise; times in ms."""

    place: Place
    before: Timing
    after: Timing

    @property
    def ratio(self) -> float:
        """How many times as long it takes now."""
        return self.after.median / self.before.median

    @property
    def worse(self) -> bool:
        """Whether it takes longer now."""
        return self.ratio > 1


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


def latest(runs: Sequence[Run]) -> dict[tuple[str, str], Run]:
    """The last run of each target on each host."""
    return {(run.target, run.host): run for run in runs}


def times(report: Report) -> dict[Place, Timing]:
    """The time of each variant, by the clock that counts."""
    return {place: measured.timings[place.clock] for place, measured in _places(report)}


def changes(runs: Sequence[Run]) -> list[list[Change]]:
    """For each run, what differs from the last run before it that measured the same."""
    known: dict[tuple[str, Place], Timing] = {}
    found: list[list[Change]] = []
    for run in runs:
        here: list[Change] = []
        for place, timing in times(run.report).items():
            before = known.get((run.target, place))
            if before is not None and differs(before, timing):
                here.append(Change(place, before, timing))
            known[run.target, place] = timing
        found.append(here)
    return found


def noise(timing: Timing) -> float:
    """By how many ms a time may be off: half its spread, or what a second measurement differed by, if that is more."""
    return max((timing.high - timing.low) / 2, abs(timing.median - timing.again))


def differs(before: Timing, after: Timing) -> bool:
    """Whether two times of the same differ by more than their noise."""
    return abs(after.median - before.median) > max(noise(before) + noise(after), LEAST_CHANGE * before.median)


def _places(report: Report) -> Iterator[tuple[Place, Measured]]:
    inputs = {(cost.label, cost.what): cost.inputs for cost in report.costs}
    machine = report.machine.gpu or report.machine.cpu
    for one in report.measured:
        clock = next((clock for clock in CLOCKS if clock in one.timings), None)
        if clock is not None:
            given = inputs.get((one.label, one.what), ())
            yield Place(machine, one.label, given, one.variant, one.what, clock), one


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
