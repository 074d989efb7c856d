"""Read and write files. Standard library only.

Only regular files are read, and only up to a limit: a FIFO blocks forever, and a device has no end. A file is written
next to its destination, synchronised and renamed, so a reader sees the old text or the new one, never a part.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import secrets
import stat
import tokenize
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

MAX_BYTES = 16 << 20
"""The default limit on the size of a file that is read: of source, settings, documents."""
NOTEBOOK = ".ipynb"
"""The suffix of Jupyter notebooks."""
_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NOT_SYNCHRONISED = (errno.EINVAL, errno.ENOTSUP, errno.EROFS)


def status_of(path: str | Path) -> os.stat_result | None:
    """Return the status of `path`, following links; None if nothing exists there.

    Raises OSError, also for an invalid path.
    """
    with _as_os_error(path):
        try:
            return Path(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None


def may_be_regular(path: str | Path) -> bool:
    """Return True if `path` is a regular file, or is free and has a valid name."""
    try:
        status = status_of(path)
    except OSError:
        return False
    return status is None or stat.S_ISREG(status.st_mode)


def read_bytes(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """Return the contents of a regular file.

    Raises OSError if the file is missing, is something else (a folder, a FIFO, a device), or has more than `limit`
    bytes.
    """
    data = read_head(path, limit + 1)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes", str(path))
    return data


def read_head(path: str | Path, size: int) -> bytes:
    """Return the first `size` bytes of a regular file, or all if it is shorter. Raises OSError."""
    with _as_os_error(path):
        _require_regular(Path(path).stat(), path)  # opening a FIFO or a device would have an effect on it
        with os.fdopen(os.open(path, os.O_RDONLY | _NO_WAITING | _BINARY), "rb") as stream:
            _require_regular(os.fstat(stream.fileno()), path)
            return stream.read(size)


def names_in(folder: str | Path) -> list[str]:
    """Return the names in a folder, sorted, without that of Python's cache. Raises OSError."""
    with _as_os_error(folder), os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.name != "__pycache__")


def read_text(path: str | Path, errors: str = "strict", limit: int = MAX_BYTES) -> str:
    """Return the text of a regular file in UTF-8, every line end as `\\n`. Raises OSError, and UnicodeDecodeError."""
    return _with_newlines(read_bytes(path, limit).decode("utf-8", errors))


def read_python(path: str | Path) -> str:
    """Return the text of a Python file in the encoding that it declares, every line end as `\\n`.

    Raises OSError, SyntaxError for an unknown encoding, and UnicodeDecodeError.
    """
    data = read_bytes(path)
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return _with_newlines(data.decode(encoding))


def read_python_leniently(path: str | Path) -> str:
    """Return the text of a Python file as `read_python` does; if decoding fails, as UTF-8 with replacement characters.
    Raises OSError.
    """
    try:
        return read_python(path)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return read_text(path, "replace")


def write(path: str | Path, data: bytes | str, mode: int | None = None) -> None:
    """Create a file, or replace a regular one, in one step. A link stays a link.

    Permissions are `mode`, or those of the replaced file. Raises OSError, also if `path` is not a regular file, or,
    without `mode`, if the file is not writable.
    """
    encoded = data.encode("utf-8") if isinstance(data, str) else data
    with _as_os_error(path):
        place = Path(os.path.realpath(path))
        former = status_of(place)
        if former is not None:
            _require_regular(former, path)
            if mode is None and not os.access(place, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            mode = stat.S_IMODE(former.st_mode) if mode is None else mode
        with _beside(place) as temporary:
            _write_and_synchronise(temporary, encoded)
            if mode is not None:
                temporary.chmod(mode)
            temporary.replace(place)
        _synchronise_folder(place.parent)


@contextmanager
def new_file(path: Path) -> Generator[Path, None, None]:
    """Yield a temporary path next to `path`, and move the file written there to `path` at the end.

    Raises FileExistsError if `path` exists by then, and OSError.
    """
    with _beside(path) as temporary:
        yield temporary
        _move_to_free_place(temporary, path)


def set_aside(path: Path) -> Path:
    """Rename a file of fx-lsp to `<name>.broken-<n>`, and return that path. Raises OSError."""
    for number in range(1, 10_000):
        aside = path.with_name(f"{path.name}.broken-{number}")
        with suppress(FileExistsError):
            _move_to_free_place(path, aside)
            return aside
    raise FileExistsError(errno.EEXIST, "too many files were moved aside", str(path))


def _move_to_free_place(source: Path, place: Path) -> None:
    """Rename a file. Raises FileExistsError if `place` exists, which a plain rename replaces on most systems."""
    if os.name == "nt":
        source.rename(place)
        return
    try:
        os.link(source, place)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: create the destination exclusively, then replace it
        os.close(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        source.replace(place)
    else:
        source.unlink()


@contextmanager
def _beside(place: Path) -> Generator[Path, None, None]:
    """Yield a temporary path in the same folder, and remove the file at the end."""
    temporary = place.with_name(f".fx-lsp-{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _write_and_synchronise(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666), "wb") as stream:
        stream.write(data)
        stream.flush()
        _synchronise(stream.fileno())


def _synchronise(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOT_SYNCHRONISED:  # file systems without synchronisation raise these errors
            raise


def _synchronise_folder(folder: Path) -> None:
    """Make the name of a file survive a power failure, if the folder can be opened."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _require_regular(status: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


@contextmanager
def _as_os_error(path: str | Path) -> Generator[None, None, None]:
    """Raise OSError that names `path`, also for paths that Python rejects: with a NUL, or with a lone surrogate."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise
    except ValueError as error:
        raise OSError(errno.EINVAL, f"this is not a valid file name ({error})", repr(path)) from error


def _with_newlines(text: str) -> str:
    return text.removeprefix(codecs.BOM_UTF8.decode()).replace("\r\n", "\n").replace("\r", "\n")
