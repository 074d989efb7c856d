"""SQLite files of ours: which file is one, how one begins, and how one that is damaged makes room for the next.

A file that is not ours is never opened by SQLite, which writes to what it opens.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from fx_lsp import files
from fx_lsp.errors import ForeignFileError

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_APPLICATION_OFFSET = 68
_COMPANIONS = ("-wal", "-shm", "-journal")
_SET_ASIDE_AT_MOST = 3


@dataclass(frozen=True)
class DatabaseFormat:
    """Name what a kind of file `holds`, as people call it, and the number that says so in its header.

    `name` is what the file is called in our own folder. `columns` are those that the tables of every version have: by
    them a file is known from before there was that number.
    """

    name: str
    holds: str
    application: int
    version: int
    schema: tuple[str, ...]
    columns: Mapping[str, frozenset[str]]


def connect(path: Path, form: DatabaseFormat, lock_seconds: float) -> sqlite3.Connection:
    """Return a connection to a file of ours, which is begun where there is none.

    Raises ForeignFileError for a file that is not ours, sqlite3.Error and OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not is_ours(path, form):
        with suppress(FileExistsError):  # another process has just begun it
            _begin(path, form)
    where = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(where, lock_seconds, isolation_level=None, check_same_thread=False, uri=True)


def is_ours(path: Path, form: DatabaseFormat) -> bool:
    """Return True for a file of this format, False where there is none.

    Raises ForeignFileError for anything else that is there, and OSError where that cannot be read. A damaged file is
    ours where its header says so, or where it stands at the place that is ours.
    """
    status = files.status_of(path)
    if status is None:
        return False
    try:
        header = files.read_head(path, _HEADER_BYTES)
    except OSError as error:
        raise ForeignFileError(errno.EEXIST, f"{error.strerror}, and stays unchanged", str(path)) from error
    application = int.from_bytes(header[_APPLICATION_OFFSET:][:4], "big")
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        ours = _is_at_our_place(path, form)
    elif application:
        ours = application == form.application
    else:
        ours = _is_at_our_place(path, form) or _has_our_tables(path, form)
    if not ours:
        why = f"it already exists, does not hold {form.holds}, and stays unchanged"
        raise ForeignFileError(errno.EEXIST, why, str(path))
    return True


def set_aside(path: Path, form: DatabaseFormat) -> Path:
    """Rename a file of ours that cannot be used, and return what it is called now. Raises what `is_ours` does."""
    is_ours(path, form)
    aside = files.set_aside(path)
    _remove_companions(path)
    number = int(aside.name.rpartition("-")[2])
    oldest = path.with_name(f"{path.name}.broken-{number - _SET_ASIDE_AT_MOST}")
    with suppress(ForeignFileError):
        if is_ours(oldest, form):
            oldest.unlink(missing_ok=True)
    return aside


def remove(path: Path, form: DatabaseFormat) -> None:
    """Remove a file of ours with all that is in it. Raises what `is_ours` does."""
    if is_ours(path, form):
        path.unlink(missing_ok=True)
        _remove_companions(path)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the format that an open file has."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version


def mark(connection: sqlite3.Connection, form: DatabaseFormat) -> None:
    """Say in a file of ours from before there was a number for it that it is ours."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != form.application:
        connection.execute(f"PRAGMA application_id = {form.application}")


def _begin(path: Path, form: DatabaseFormat) -> None:
    """Put an empty file of ours at `path`, in one step. Raises FileExistsError where one is there."""
    leftovers = [other for suffix in _COMPANIONS if (other := _companion(path, suffix)).exists()]
    if leftovers and files.status_of(path) is None:  # SQLite would read them as a part of the new file
        if not _is_at_our_place(path, form):
            why = f"it is not created, because {leftovers[0].name} next to it already exists"
            raise ForeignFileError(errno.EEXIST, why, str(path))
        _remove_companions(path)
    with files.new_file(path) as temporary, closing(sqlite3.connect(temporary, isolation_level=None)) as connection:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("BEGIN")
        for pragma in (f"application_id = {form.application}", f"user_version = {form.version}"):
            connection.execute(f"PRAGMA {pragma}")
        for statement in form.schema:
            connection.execute(statement)
        connection.execute("COMMIT")
        connection.execute("PRAGMA journal_mode = WAL").fetchall()


def _has_our_tables(path: Path, form: DatabaseFormat) -> bool:
    """Return whether a file has the tables of a format and no others; it is looked at without a change to it."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            return tables == set(form.columns) and all(
                form.columns[table] <= {name for (name,) in connection.execute(_COLUMNS_OF, (table,))}
                for table in tables
            )
    except sqlite3.Error:
        return False


_COLUMNS_OF = "SELECT name FROM pragma_table_info(?)"


def _is_at_our_place(path: Path, form: DatabaseFormat) -> bool:
    return path.name == form.name and path.parent.resolve() == files.cache_folder().resolve()


def _companion(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _remove_companions(path: Path) -> None:
    for suffix in _COMPANIONS:
        _companion(path, suffix).unlink(missing_ok=True)
