"""Convert columns in the commands' output for programs: characters, as Python's `str` counts them, in place of UTF-8
bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from fx_lsp import files
from fx_lsp.commands.cells import cell_of
from fx_lsp.commands.sources import read_source
from fx_lsp.tracing.source.parsing import split_lines

_SPAN = {"file", "line", "col", "end_line", "end_col"}


def in_characters(data: Any) -> Any:
    """Return JSON data in which the columns of all spans, from 0, count characters.

    Spans in a notebook also get their `cell`, and count lines in it.
    """
    if isinstance(data, list):
        return [in_characters(item) for item in cast("list[Any]", data)]
    if not isinstance(data, dict):
        return data
    fields = {key: in_characters(value) for key, value in cast("dict[str, Any]", data).items()}
    if fields.keys() >= _SPAN:
        fields["col"] = character_column(fields["file"], fields["line"], fields["col"])
        fields["end_col"] = character_column(fields["file"], fields["end_line"], fields["end_col"])
        first, last = (cell_of(fields["file"], fields[name]) for name in ("line", "end_line"))
        if first is not None and last is not None:
            fields |= {"cell": first[0], "line": first[1], "end_line": last[1]}
    return fields


def character_column(file: str, number: int, column: int) -> int:
    """Return a column in UTF-8 bytes of a line of a file as one in characters, both from 0."""
    line = line_text(file, number)
    before = line.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "replace")
    return len(before) if line else column


def line_text(file: str, number: int) -> str:
    """Return the text of a line of a file, from 1; "" if it cannot be read."""
    try:
        status = files.status_of(file)
        lines = _lines(file, status.st_mtime_ns, status.st_size) if status is not None else []
    except (OSError, SyntaxError, ValueError):
        return ""
    return lines[number - 1] if 0 < number <= len(lines) else ""


@lru_cache(maxsize=16)
def _lines(file: str, mtime_ns: int, size: int) -> list[str]:
    return split_lines(read_source(file).removeprefix("\ufeff"))
