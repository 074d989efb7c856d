"""Extract the code in documents of a project: notebooks and the blocks of a README, with line numbers kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from fx_lsp.files import NOTEBOOK
from fx_lsp.model import Failure
from fx_lsp.tracing.source.parsing import is_foreign, parse, python_of, split_lines

DOCUMENTS = (NOTEBOOK, ".md", ".rst")
"""The suffixes of such documents."""
_FENCE = re.compile(r"\s*(```+|~~~+)\s*(\w*)")
_PYTHON = ("python", "py", "python3", "pycon")
_IMPORT = re.compile(r"^\s*(import|from)\s+\w", re.MULTILINE)


def code_in(path: str, text: str) -> Iterator[str]:
    """Yield the separately executable pieces of code in a document, each with the lines of the others left empty.

    A block that imports something begins a new piece; one that does not parse is left out.
    """
    blocks = _cells(text) if path.endswith(NOTEBOOK) else _fenced(text)
    pieces: list[dict[int, str]] = []
    for line, block in blocks:
        lines = split_lines(block)
        if isinstance(parse(path, block), Failure):
            continue
        if not pieces or (_IMPORT.search(block) and not path.endswith(NOTEBOOK)):
            pieces.append({})
        pieces[-1].update(enumerate(lines, line))
    for piece in pieces:
        yield "\n".join(piece.get(number, "") for number in range(1, max(piece, default=0) + 1))


def notebook_code(text: str) -> str:
    """Return the code of a notebook, one cell below the other. Raises ValueError for a text that is not a notebook."""
    return module_of(_sources(text))


def module_of(cells: Iterable[str]) -> str:
    """Return the cells of a notebook as one text, in which each begins a line.

    Each cell has as many lines as before. A cell in another language (`%%bash`) is left empty.
    """
    return "\n".join("\n".join(_blank(cell) if is_foreign(cell) else split_lines(cell)) for cell in cells)


def _sources(text: str) -> list[str]:
    """Return the code cells of a notebook. Raises ValueError for a text that is not a notebook."""
    return [source for _, source in notebook_cells(text)]


def notebook_cells(text: str) -> list[tuple[int, str]]:
    """Return the code cells of a notebook, each with its number among all cells, from 1. Raises ValueError for a text
    that is not a notebook. A notebook of another language has none.
    """
    try:
        notebook: Any = json.loads(text)
        language = notebook.get("metadata", {}).get("language_info", {}).get("name", "python")
        cells = enumerate(notebook["cells"] if language in ("python", "ipython") else [], 1)
        return [(number, "".join(cell["source"])) for number, cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("it is not a notebook of format 4") from error


def _blank(cell: str) -> list[str]:
    return [""] * len(split_lines(cell))


def _cells(text: str) -> Iterator[tuple[int, str]]:
    """Yield the code cells of a notebook with their first lines, one below the other, without notebook commands."""
    try:
        sources = _sources(text)
    except ValueError:
        return
    line = 1
    for source in sources:
        yield line, python_of(source)
        line += len(split_lines(source))


def _fenced(text: str) -> Iterator[tuple[int, str]]:
    """Yield the Python blocks of a Markdown text with their first lines; only lines after a prompt, if a block has
    prompts.
    """
    fence, first, block = "", 0, list[str]()
    for number, line in enumerate(split_lines(text), 1):
        match = _FENCE.match(line)
        if fence and match and match[1].startswith(fence) and not match[2]:
            if first:
                yield first, _plain(block)
            fence, first, block = "", 0, []
        elif fence:
            block.append(line)
        elif match:
            fence, first = match[1], number + 1 if match[2].lower() in _PYTHON else 0


def _plain(block: list[str]) -> str:
    """Return a block without its indentation, and without prompts and their output."""
    prompts = any(line.lstrip().startswith(">>>") for line in block)
    if prompts:
        block = [line.lstrip()[4:] if re.match(r"\s*(>>>|\.\.\.)", line) else "" for line in block]
    indent = min((len(line) - len(line.lstrip()) for line in block if line.strip()), default=0)
    return "\n".join(line[indent:] for line in block)
