"""Name places for people: by the line of a file, and by the cell of a notebook and the line in it."""

from __future__ import annotations

from fx_lsp.commands.cells import cell_of
from fx_lsp.commands.columns import character_column
from fx_lsp.commands.sources import shown_path
from fx_lsp.model import Span


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
