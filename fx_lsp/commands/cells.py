"""Find the cell of a notebook that has a line of its code."""

from __future__ import annotations

from functools import lru_cache

from fx_lsp import files
from fx_lsp.commands.sources import NOTEBOOK, read_document
from fx_lsp.tracing.calls.documents import notebook_cells
from fx_lsp.tracing.source.parsing import split_lines


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
def _cells(file: str, mtime_ns: int, size: int) -> tuple[tuple[int, int], ...]:
    """Return the number and the count of lines of each code cell."""
    return tuple((number, len(split_lines(code))) for number, code in notebook_cells(read_document(file)))
