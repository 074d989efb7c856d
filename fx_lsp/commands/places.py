"""Convert places in files for people and programs: cells and lines of notebooks, and columns in characters, as Python's
`str` counts them, in place of UTF-8 bytes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from fx_lsp import files
from fx_lsp.commands.sources import NOTEBOOK, read_document, read_source, shown_path
from fx_lsp.model import Span
from fx_lsp.tracing.calls.documents import notebook_cells
from fx_lsp.tracing.source.parsing import split_lines

_SPAN = {"file", "line", "col", "end_line", "end_col"}


def place_text(span: Span) -> str:
    """Return `model.py:12`, or `book.ipynb:cell 3:12:5` with a column from 1."""
    cell = cell_of(span.file, span.line)
    if cell is None:
        return f"{shown_path(span.file)}:{span.line}"
    return f"{shown_path(span.file)}:cell {cell[0]}:{cell[1]}:{character_column(span.file, span.line, span.col) + 1}"


def line_name(span: Span) -> str:
    """Return `line 12`, or `cell 3, line 12`."""
    cell = cell_of(span.file, span.line)
    return f"line {span.line}" if cell is None else f"cell {cell[0]}, line {cell[1]}"


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


def cell_of(file: str, line: int) -> tuple[int, int] | None:
    """Return the number of the cell that has a line of a notebook's code, among all cells, and the line in the cell.

    All count from 1. None for a file that is not a notebook, or that cannot be read.
    """
    if not file.endswith(NOTEBOOK):
        return None
    try:
        status = files.status_of(file)
        cells = _cells(file, status.st_mtime_ns, status.st_size) if status is not None else ()
    except (OSError, ValueError):
        return None
    for number, lines in cells:
        if line <= lines:
            return number, line
        line -= lines
    return None


@lru_cache(maxsize=16)
def _lines(file: str, mtime_ns: int, size: int) -> list[str]:
    return split_lines(read_source(file).removeprefix("\ufeff"))


@lru_cache(maxsize=16)
def _cells(file: str, mtime_ns: int, size: int) -> tuple[tuple[int, int], ...]:
    """Return the number and the count of lines of each code cell."""
    return tuple((number, len(split_lines(code))) for number, code in notebook_cells(read_document(file)))
