"""Convert LSP to fx-lsp's terms: positions, ranges, changes, URIs. Only this module reads client columns.

Client lines and characters count from 0, characters in the negotiated encoding. In fx-lsp, lines count from 1, columns
in UTF-8 bytes from 0. Positions beyond the end of a line or of the text mean its end, as in the protocol.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from lsprotocol import types
from pygls.uris import to_fs_path

from fx_lsp import files

_LINE_ENDS = re.compile(r"(?<=\n)|(?<=\r)(?!\n)")
_UNSAVED = ("untitled", "vscode-interactive")
"""The schemes of documents without a file."""
_UNSAVED_SUFFIXES = {".py": ".py", files.NOTEBOOK: files.NOTEBOOK, ".interactive": files.NOTEBOOK}
"""The suffixes of their URIs, each with that of the path that the document is traced as."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Return `text` with each lone surrogate, which JSON may contain, replaced by U+FFFD (also one UTF-16 unit)."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def split_lines(text: str) -> list[str]:
    """Return the lines of `text` with their ends; the last has none.

    Only `\\n`, `\\r\\n` and `\\r` end lines, for LSP as for Python. `str.splitlines` would also split at form feeds.
    """
    if "\r" in text:
        return _LINE_ENDS.split(text)
    lines = text.split("\n")
    return [*(line + "\n" for line in lines[:-1]), lines[-1]]


def position(lines: Sequence[str], at: types.Position, encoding: str) -> tuple[int, int]:
    """Return a client position as (line, column)."""
    row, index = _place(lines, at, encoding)
    return row + 1, len(lines[row][:index].encode())


def line_range(range_: types.Range) -> tuple[int, int]:
    """Return the first and the last line of a client range."""
    return range_.start.line + 1, range_.end.line + 1


def apply_change(lines: Sequence[str], change: types.TextDocumentContentChangeEvent, encoding: str) -> list[str]:
    """Return the lines after one change (incremental, or of the whole text)."""
    new = clean_text(change.text)
    if not isinstance(change, types.TextDocumentContentChangePartial):
        return split_lines(new)
    first, begin = start = _place(lines, change.range.start, encoding)
    last, stop = max(start, _place(lines, change.range.end, encoding))
    # Split the adjacent lines again too: a `\r` and a `\n` may have become neighbours.
    after = lines[last + 1 :]
    before = lines[first - 1] if first else ""
    middle = lines[first][:begin] + new + lines[last][stop:]
    replaced = split_lines(before + middle + (after[0] if after else ""))
    if len(after) > 1:
        replaced.pop()
    return [*lines[: max(first - 1, 0)], *replaced, *after[1:]]


def path_of_uri(uri: str) -> str | None:
    """Return the path of a `file:` URI; None for any other, and for a malformed one."""
    try:
        return to_fs_path(uri) if uri[:5].lower() == "file:" else None
    except ValueError:
        return None


def file_of_uri(uri: str, roots: Sequence[str]) -> str | None:
    """Return the absolute path that a document is traced as. None if it must not be traced: `git:`, views of fx-lsp,
    and paths that are a folder, a FIFO or a device.

    An unsaved document or notebook, or an interactive window, gets a path in the first root, where its imports resolve.
    """
    scheme, _, place = uri.partition(":")
    scheme = scheme.lower()
    if scheme == "file":
        path = path_of_uri(uri)
        return path if path is not None and files.may_be_regular(path) else None
    if scheme in _UNSAVED:
        stem, dot, ending = place.rpartition(".")
        suffix = _UNSAVED_SUFFIXES.get(dot + ending)
        name = re.sub(r"\W+", "_", place if suffix is None else stem).strip("_") or "1"
        return str(Path(roots[0] if roots else Path.cwd()) / f"untitled_{name}{suffix or '.py'}")
    return None


def _place(lines: Sequence[str], at: types.Position, encoding: str) -> tuple[int, int]:
    """Return a client position as (0-based line, index of the character in it)."""
    if at.line >= len(lines):
        return len(lines) - 1, len(lines[-1])
    line = lines[at.line]
    content = line.rstrip("\r\n")
    return at.line, _character_index(content, at.character, encoding)


def _character_index(line: str, units: int, encoding: str) -> int:
    if encoding == types.PositionEncodingKind.Utf32 or line.isascii():
        return min(units, len(line))
    codec, width = ("utf-8", 1) if encoding == types.PositionEncodingKind.Utf8 else ("utf-16-le", 2)
    # A position inside a character (between two surrogates) means the place before it.
    return len(line.encode(codec)[: units * width].decode(codec, "ignore"))
