"""Store the texts and notebooks that the client has open.

The Python cells of a notebook are one text, its module, in which each cell begins a line. `OpenCell` converts positions
in a cell to positions in the module, and back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from lsprotocol import types

from fx_lsp.messages.places import line_of
from fx_lsp.model import Span
from fx_lsp.server import from_proto

_END = 2**31 - 1
"""A client column beyond the end of any line, which means its end."""


@dataclass(frozen=True)
class OpenCell:
    """Hold the place of a notebook's cell in the module: its number of lines, and those `above` it."""

    uri: str
    version: int
    above: int
    lines: int

    def module_position(self, at: types.Position) -> types.Position:
        """Return a client position in the cell as one in the module. Beyond the end of the cell is its end."""
        line, character = (at.line, at.character) if at.line < self.lines else (self.lines - 1, _END)
        return types.Position(line + self.above, character)

    def module_range(self, range_: types.Range) -> types.Range:
        """Return a client range in the cell as one in the module."""
        return types.Range(self.module_position(range_.start), self.module_position(range_.end))

    def contains(self, at: types.Position) -> bool:
        """Return True if a position in the module is in this cell."""
        return self.above <= at.line < self.above + self.lines

    def own_position(self, at: types.Position) -> types.Position:
        """Return a position in the module as one in the cell. Beyond the end of the cell is its end."""
        line = at.line - self.above
        return types.Position(line, at.character) if line < self.lines else types.Position(self.lines - 1, _END)

    def own_range(self, range_: types.Range) -> types.Range:
        """Return a range in the module that begins in this cell as one in the cell."""
        return types.Range(self.own_position(range_.start), self.own_position(range_.end))


@dataclass(frozen=True)
class OpenText:
    """Hold one version of an open text. `file` is the absolute path that it is traced as. The text of a notebook has
    `cells`.
    """

    uri: str
    file: str
    version: int
    lines: tuple[str, ...]
    cells: tuple[OpenCell, ...] = ()

    @cached_property
    def text(self) -> str:
        """Return the whole text."""
        return "".join(self.lines)

    def cell_at(self, at: types.Position) -> OpenCell | None:
        """Return the cell of a position; None outside of notebooks."""
        return next((cell for cell in reversed(self.cells) if cell.above <= at.line), None)

    def place_name(self, span: Span) -> str:
        """Return a place in the text as people name it: by its line, or by its code cell and the line in that."""
        cell = self.cell_at(types.Position(span.line - 1, 0))
        if cell is None:
            return line_of(span)
        return f"code cell {self.cells.index(cell) + 1}, line {span.line - cell.above}"

    def location(self, range_: types.Range) -> types.Location:
        """Return a range of the text with the URI of the document that the client shows it in."""
        cell = self.cell_at(range_.start)
        return types.Location(self.uri, range_) if cell is None else types.Location(cell.uri, cell.own_range(range_))

    def edits(self, edits: Iterable[types.TextEdit]) -> list[tuple[str, int, list[types.TextEdit]]]:
        """Return the URI and version of each document of the client that edits of the text change, with those edits."""
        versions = {cell.uri: cell.version for cell in self.cells}
        edits_by_uri: dict[str, list[types.TextEdit]] = {}
        for edit in edits:
            place = self.location(edit.range)
            edits_by_uri.setdefault(place.uri, []).append(types.TextEdit(place.range, edit.new_text))
        return [(uri, versions.get(uri, self.version), own) for uri, own in edits_by_uri.items()]

    def diagnostics(self, shown: Iterable[types.Diagnostic]) -> Iterator[tuple[str, int, list[types.Diagnostic]]]:
        """Yield the URI and version of each document of the client with its own of the diagnostics of the text."""
        shown = list(shown)
        if not self.cells:
            yield self.uri, self.version, shown
        for cell in self.cells:
            own = [diagnostic for diagnostic in shown if self.cell_at(diagnostic.range.start) is cell]
            for diagnostic in own:
                diagnostic.range = cell.own_range(diagnostic.range)
            yield cell.uri, cell.version, own


@dataclass(frozen=True)
class CellText:
    """Hold one version of the text of a cell, in any language."""

    language: str
    version: int
    lines: tuple[str, ...]


@dataclass(frozen=True)
class OpenNotebook:
    """Hold one version of an open notebook: its cells in order with their URIs, and their texts by URI."""

    uri: str
    file: str
    version: int
    cells: tuple[tuple[str, types.NotebookCellKind], ...] = ()
    texts: dict[str, CellText] = field(default_factory=dict[str, CellText])

    def module(self) -> OpenText:
        """Return the Python cells as one text."""
        from fx_lsp.tracing.calls.documents import module_of

        code = [(uri, self.texts[uri]) for uri, kind in self.cells if kind == types.NotebookCellKind.Code]
        python = [(uri, text) for uri, text in code if text.language == "python"]
        cells: list[OpenCell] = []
        above = 0
        for uri, text in python:
            cells.append(OpenCell(uri, text.version, above, len(text.lines)))
            above += len(text.lines)
        lines = from_proto.split_lines(module_of("".join(text.lines) for _, text in python))
        return OpenText(self.uri, self.file, self.version, tuple(lines), tuple(cells))

    def with_opened(self, items: Iterable[types.TextDocumentItem]) -> OpenNotebook:
        """Return the notebook with the texts of more cells."""
        opened = {item.uri: CellText(item.language_id, item.version, _lines(item.text)) for item in items}
        return replace(self, texts={**self.texts, **opened})

    def with_structure(self, change: types.NotebookDocumentCellChangeStructure) -> OpenNotebook:
        """Return the notebook with cells added, removed or moved."""
        opened = self.with_opened(change.did_open or ())
        array, cells = change.array, [*self.cells]
        cells[array.start : array.start + array.delete_count] = [(c.document, c.kind) for c in array.cells or ()]
        in_order = tuple((uri, kind) for uri, kind in cells if uri in opened.texts)
        closed = {document.uri for document in change.did_close or ()} - dict(in_order).keys()
        return replace(opened, cells=in_order, texts={u: t for u, t in opened.texts.items() if u not in closed})

    def with_kinds(self, changed: Iterable[types.NotebookCell]) -> OpenNotebook:
        """Return the notebook with cells of other kinds."""
        kinds = {cell.document: cell.kind for cell in changed}
        return replace(self, cells=tuple((uri, kinds.get(uri, kind)) for uri, kind in self.cells))

    def with_text(self, change: types.NotebookDocumentCellContentChanges, encoding: str) -> OpenNotebook:
        """Return the notebook with a cell edited."""
        cell = self.texts.get(change.document.uri)
        if cell is None:
            return self
        lines = list(cell.lines)
        for one in change.changes:
            lines = from_proto.apply_change(lines, one, encoding)
        edited = replace(cell, version=change.document.version, lines=tuple(lines))
        return replace(self, texts={**self.texts, change.document.uri: edited})


class Documents:
    """Hold the open texts by URI and by file, and the open notebooks by URI."""

    def __init__(self) -> None:
        self._by_uri: dict[str, OpenText] = {}
        self._by_file: dict[str, OpenText] = {}
        self._by_cell: dict[str, OpenText] = {}
        self._notebooks: dict[str, OpenNotebook] = {}

    def __iter__(self) -> Iterator[OpenText]:
        return iter(tuple(self._by_uri.values()))

    def get(self, uri: str) -> OpenText | None:
        """Return the open text with this URI: a file, or the module of a notebook."""
        return self._by_uri.get(uri)

    def of_file(self, file: str) -> OpenText | None:
        """Return the open text that is traced as this file."""
        return self._by_file.get(file)

    def of_cell(self, uri: str) -> tuple[OpenText, OpenCell] | None:
        """Return the module of a notebook and the place of the cell with this URI in it."""
        document = self._by_cell.get(uri)
        return None if document is None else (document, next(cell for cell in document.cells if cell.uri == uri))

    def notebook(self, uri: str) -> OpenNotebook | None:
        """Return the open notebook with this URI."""
        return self._notebooks.get(uri)

    def put(self, document: OpenText) -> None:
        """Add a text, or a new version of it."""
        self._forget_cells(document.uri)
        self._by_uri[document.uri] = document
        self._by_file[document.file] = document
        self._by_cell.update(dict.fromkeys((cell.uri for cell in document.cells), document))

    def put_notebook(self, notebook: OpenNotebook) -> OpenText:
        """Add a notebook, or a new version of it, and return its module, which is added too."""
        document = notebook.module()
        self._notebooks[notebook.uri] = notebook
        self.put(document)
        return document

    def remove(self, uri: str) -> OpenText | None:
        """Remove a text or a notebook, and return it; None if it was not open."""
        self._forget_cells(uri)
        self._notebooks.pop(uri, None)
        document = self._by_uri.pop(uri, None)
        if document is not None:
            self._by_file.pop(document.file, None)
        return document

    def _forget_cells(self, uri: str) -> None:
        former = self._by_uri.get(uri)
        for cell in former.cells if former is not None else ():
            self._by_cell.pop(cell.uri, None)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(from_proto.split_lines(from_proto.clean_text(text)))
