"""Write files to a user's paths: never over a file that fx-lsp has not written, unless forced.

Written files are recognized by their hash, in a file for each path: `<cache>/written/<hash of the path>`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from fx_lsp import files, folders
from fx_lsp.errors import ForeignFileError

MAX_REMEMBERED = 1000
"""The most files that are remembered as written by fx-lsp."""


def write_outputs(texts: Mapping[Path, str], force: bool = False) -> None:
    """Write texts to files; with `force`, over any existing ones. Raises ForeignFileError, before any is written, for
    an existing file that has neither its text nor the one last written to it; and OSError.
    """
    for path, text in texts.items():
        if not force and _is_regular(path) and not _is_ours(path, text):
            raise ForeignFileError(errno.EEXIST, "it already exists, and fx-lsp did not write it", str(path))
    for path, text in texts.items():
        put(path, text)
        _remember(path, text)


def report_unwritten(error: OSError, path: str) -> int:
    """Print why a file is not written; return the exit code."""
    way_out = ": --force overwrites it" if isinstance(error, ForeignFileError) else ""
    print(f"fx-lsp: {error.filename or path} cannot be written: {error.strerror}{way_out}", file=sys.stderr)
    return 2


def put(path: Path, text: str) -> None:
    """Replace the text of a file in one step; write directly to a path that is not a regular file, such as
    `/dev/stdout`. Raises OSError.
    """
    data = text.encode("utf-8", "surrogateescape")
    if files.status_of(path) is None or _is_regular(path) or path.is_dir():
        files.write(path, data)
    else:
        path.write_bytes(data)


def remove_output(path: Path) -> None:
    """Remove a file that still has the text last written to it. Raises OSError."""
    if _is_regular(path) and _is_ours(path):
        path.unlink()
        _note_of(path).unlink(missing_ok=True)


def _is_regular(path: Path) -> bool:
    status = files.status_of(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def _is_ours(path: Path, text: str | None = None) -> bool:
    present = _digest(files.read_bytes(path))
    with suppress(OSError, UnicodeDecodeError):
        if files.read_text(_note_of(path)) == present:
            return True
    return text is not None and _digest(text.encode("utf-8", "surrogateescape")) == present


def _remember(path: Path, text: str) -> None:
    """Record the written text; if that fails, the file counts as foreign next time."""
    note = _note_of(path)
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        files.write(note, _digest(text.encode("utf-8", "surrogateescape")))
        for oldest in sorted(note.parent.iterdir(), key=lambda other: other.stat().st_mtime)[:-MAX_REMEMBERED]:
            oldest.unlink(missing_ok=True)


def _note_of(path: Path) -> Path:
    place = os.path.realpath(path).encode("utf-8", "surrogateescape")
    return folders.cache_folder() / "written" / _digest(place)[:32]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
