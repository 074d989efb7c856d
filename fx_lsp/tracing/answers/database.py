"""Manage fx-lsp's SQLite files: recognise them, create them, and set damaged ones aside.

SQLite, which writes to the files that it opens, never opens a foreign file.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from fx_lsp import files, folders
from fx_lsp.errors import ForeignFileError

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_APPLICATION_OFFSET = 68
_COMPANIONS = ("-wal", "-shm", "-journal")
_SET_ASIDE_AT_MOST = 3


@dataclass(frozen=True)
class DatabaseFormat:
    """Describe the kind of a file: what it `holds`, for people, and its number in the file's header.

    `name` is the file name in fx-lsp's own folder. `columns` are those of the tables in every version; they identify
    files that predate the number.
    """

    name: str
    holds: str
    application: int
    version: int
    schema: tuple[str, ...]
    columns: Mapping[str, frozenset[str]]


def connect(path: Path, form: DatabaseFormat, lock_seconds: float) -> sqlite3.Connection:
    """Return a connection to a file of this format, creating it if missing.

    Raises ForeignFileError for a foreign file, sqlite3.Error and OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not is_ours(path, form):
        with suppress(FileExistsError):  # another process has just created it
            _begin(path, form)
    where = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(where, lock_seconds, isolation_level=None, check_same_thread=False, uri=True)


def is_ours(path: Path, form: DatabaseFormat) -> bool:
    """Return True for a file of this format, False if there is no file.

    Raises ForeignFileError for anything else, and OSError for an unreadable file. A damaged file is fx-lsp's if its
    header says so, or if it is at fx-lsp's own path.
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
    """Rename an unusable file of this format, and return its new path. Raises the errors of `is_ours`."""
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
    """Remove a file of this format with its companions. Raises the errors of `is_ours`."""
    if is_ours(path, form):
        path.unlink(missing_ok=True)
        _remove_companions(path)


def version_of(connection: sqlite3.Connection) -> int:
    """Return the version of the format of an open file."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return version


def mark(connection: sqlite3.Connection, form: DatabaseFormat) -> None:
    """Write fx-lsp's number into the header of a file that predates it."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != form.application:
        connection.execute(f"PRAGMA application_id = {form.application}")


def _begin(path: Path, form: DatabaseFormat) -> None:
    """Create an empty file of this format at `path`, in one step. Raises FileExistsError if a file exists."""
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
    """Return True if a file has the tables of a format and no others. The file is not modified."""
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
    return path.name == form.name and path.parent.resolve() == folders.cache_folder().resolve()


def _companion(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _remove_companions(path: Path) -> None:
    for suffix in _COMPANIONS:
        _companion(path, suffix).unlink(missing_ok=True)
