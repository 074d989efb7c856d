"""Handle notifications about notebooks, and convert requests about a cell to requests about its notebook and back.

Other handlers get the URI of the notebook and positions in its module, and do not know of cells.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any, cast

from lsprotocol import types

from fx_lsp.server import from_proto
from fx_lsp.server.client import Client
from fx_lsp.server.display.benchmarks import Benchmarks
from fx_lsp.server.documents import Documents, OpenCell, OpenNotebook
from fx_lsp.server.refresh import RefreshTimer
from fx_lsp.server.requests.text_sync import forget, trace
from fx_lsp.server.session import Session

SYNC = types.NotebookDocumentSyncOptions(
    notebook_selector=[
        types.NotebookDocumentFilterWithNotebook(
            notebook=types.NotebookDocumentFilterNotebookType(notebook_type=kind),
            cells=[types.NotebookCellLanguage(language="python")],
        )
        for kind in ("jupyter-notebook", "interactive")
    ],
    save=True,
)
"""The notebooks and cells that the client sends."""


def did_open(session: Session, params: types.DidOpenNotebookDocumentParams) -> None:
    """Trace the Python cells of a notebook as one module."""
    item = params.notebook_document
    file = from_proto.file_of_uri(item.uri, session.roots())
    if file is None:
        return
    array = types.NotebookCellArrayChange(start=0, delete_count=0, cells=item.cells)
    cells = types.NotebookDocumentCellChangeStructure(array=array, did_open=params.cell_text_documents)
    notebook = OpenNotebook(item.uri, file, item.version).with_structure(cells)
    trace(session, session.documents.put_notebook(notebook))


def did_change(
    session: Session, client: Client, refresh: RefreshTimer, params: types.DidChangeNotebookDocumentParams
) -> None:
    """Update the order, the kinds and the texts of the cells."""
    uri, changes = params.notebook_document.uri, params.change.cells
    notebook, former = session.documents.notebook(uri), session.documents.get(uri)
    if notebook is None or former is None or changes is None:
        return
    if changes.structure is not None:
        notebook = notebook.with_structure(changes.structure)
    notebook = notebook.with_kinds(changes.data or ())
    for change in changes.text_content or ():
        notebook = notebook.with_text(change, session.encoding)
        refresh.typed()
    document = session.documents.put_notebook(replace(notebook, version=params.notebook_document.version))
    for cell in former.cells:
        if session.documents.of_cell(cell.uri) is None:
            client.clear(cell.uri)
    if document.text != former.text:
        trace(session, document)
    elif document.cells != former.cells:
        refresh.updated(document.file)


def did_save(session: Session, params: types.DidSaveNotebookDocumentParams) -> None:
    """Check whether imported files have changed on disk."""
    document = session.documents.get(params.notebook_document.uri)
    if session.engine is not None and document is not None:
        session.engine.saved(document.file)


def did_close(
    session: Session,
    client: Client,
    benchmarks: Benchmarks,
    refresh: RefreshTimer,
    params: types.DidCloseNotebookDocumentParams,
) -> None:
    """Remove a notebook, and the problems of its cells."""
    document = forget(session, benchmarks, refresh, params.notebook_document.uri)
    for cell in document.cells if document is not None else ():
        client.clear(cell.uri)


def from_cell(documents: Documents, params: Any) -> tuple[Any, OpenCell | None]:
    """Return the parameters of a request about a cell as those about its notebook, and the cell if the result is about
    it too; others are unchanged.
    """
    if isinstance(params, list):  # the arguments of a command
        return [_of_notebook(documents, argument) for argument in cast("list[Any]", params)], None
    identifier = getattr(params, "text_document", None)
    uri = getattr(params if identifier is None else identifier, "uri", None)
    place = documents.of_cell(uri) if isinstance(uri, str) else None
    if place is None:
        return params, None
    document, cell = place
    if identifier is None:  # a request of fx-lsp: its result names the document of each place
        at = getattr(params, "position", None)
        moved = {} if at is None else {"position": cell.module_position(at)}
        return params._replace(uri=document.uri, **moved), None
    changed = copy(params)
    changed.text_document = types.TextDocumentIdentifier(document.uri)
    if hasattr(params, "position"):
        changed.position = cell.module_position(params.position)
    if hasattr(params, "range"):
        changed.range = cell.module_range(params.range)
    if isinstance(params, types.CodeActionParams):
        changed.context = copy(params.context)
        changed.context.diagnostics = [_with_range(d, cell.module_range(d.range)) for d in params.context.diagnostics]
    return changed, cell


def to_cell(result: Any, cell: OpenCell) -> Any:
    """Return the result of a request about a notebook as that about one of its cells; None for what is in others."""
    if isinstance(result, list):
        items = (to_cell(item, cell) for item in cast("list[Any]", result))
        return [item for item in items if item is not None]
    if result is None:
        return None
    changed = copy(result)
    for name in _LISTS:
        if getattr(result, name, None) is not None:
            setattr(changed, name, to_cell(list(getattr(result, name)), cell))
    if getattr(result, "text_edit", None) is not None:
        changed.text_edit = to_cell(result.text_edit, cell)
    if isinstance(result, types.InlayHint):
        changed.position = cell.own_position(result.position)
        return changed if cell.contains(result.position) else None
    range_ = getattr(result, "range", None)
    if range_ is not None:
        changed.range = cell.own_range(range_) if cell.contains(range_.start) else None
    return changed if range_ is None or changed.range is not None else None


_LISTS = ("items", "diagnostics")
"""The attributes of results that are lists of places: of a report on a document, of an action."""


def _of_notebook(documents: Documents, argument: Any) -> Any:
    place = documents.of_cell(argument) if isinstance(argument, str) else None
    return argument if place is None else place[0].uri


def _with_range(item: Any, range_: types.Range) -> Any:
    changed = copy(item)
    changed.range = range_
    return changed
