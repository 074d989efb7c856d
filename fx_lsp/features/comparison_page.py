"""Show several graphs beside each other, aligned: as columns of text, and as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template

from fx_lsp import __version__, files
from fx_lsp.features.comparison import AlignedRow
from fx_lsp.features.documents import render_node
from fx_lsp.features.text import count
from fx_lsp.model import Node

CONTEXT = 3
"""The rows that are shown around a difference."""
_LEAST_WIDTH = 12
_MARK = "≠"
_BORDER = " │ "


def columns_text(
    titles: Sequence[str], rows: Sequence[AlignedRow], width: int | None = None, full: bool = False
) -> list[str]:
    """Return the graphs as columns, with a mark before each row that differs: all rows if `full`, otherwise those
    around differences. Columns are cut to fit in `width`.
    """
    texts = [[_text(node) for node in row.nodes] for row in rows]
    widest = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    if width is not None:
        share = max((width - 2 - len(_BORDER) * (len(titles) - 1)) // len(titles), _LEAST_WIDTH)
        widest = [min(size, share) for size in widest]
    lines = [_line(" ", titles, widest), _line(" ", ["─" * size for size in widest], widest)]
    for start, stop, hidden in _parts(rows, full):
        lines += [f"  # {count('row', stop - start)} alike"] if hidden else []
        for i in () if hidden else range(start, stop):
            lines.append(_line(" " if rows[i].alike else _MARK, texts[i], widest))
    return [*lines, *(["  # no difference"] if all(row.alike for row in rows) else [])]


def comparison_page(titles: Sequence[str], rows: Sequence[AlignedRow]) -> str:
    """Return the graphs as one HTML file, in columns that scroll together."""
    heads = "".join(f"<th>{escape(title)}</th>" for title in titles)
    body = "\n".join(f'<tr class="{"alike" if row.alike else "unlike"}">{"".join(_cells(row))}</tr>' for row in rows)
    template = Template(files.read_text(Path(__file__).with_name("comparison_page.html")))
    unlike = sum(not row.alike for row in rows)
    return template.substitute(
        title=escape(" · ".join(titles)),
        summary=f"{count('row', len(rows))}, {unlike:,} of them with a difference",
        columns=str(len(titles)),
        heads=heads,
        rows=body,
        version=__version__,
    )


def _cells(row: AlignedRow) -> Iterator[str]:
    for node, unlike in zip(row.nodes, row.unlike, strict=True):
        style = ' class="unlike"' if unlike else ""
        yield f"<td{style}>{escape(_text(node))}</td>"


def _text(node: Node | None) -> str:
    return "" if node is None else render_node(node)


def _line(mark: str, cells: Sequence[str], widths: Sequence[int]) -> str:
    shown = (cell if len(cell) <= size else f"{cell[: size - 1]}…" for cell, size in zip(cells, widths, strict=True))
    padded = (cell.ljust(size) for cell, size in zip(shown, widths, strict=True))
    return f"{mark} {_BORDER.join(padded)}".rstrip()


def _parts(rows: Sequence[AlignedRow], full: bool) -> Iterator[tuple[int, int, bool]]:
    """Yield the first and last rows (exclusive) of parts, and whether they are hidden."""
    near = [full] * len(rows)
    for i, row in enumerate(rows):
        if not row.alike:
            for j in range(max(i - CONTEXT, 0), min(i + CONTEXT + 1, len(rows))):
                near[j] = True
    start = 0
    while start < len(rows):
        stop = start + 1
        while stop < len(rows) and near[stop] == near[start]:
            stop += 1
        yield start, stop, not near[start]
        start = stop
