"""Handle `textDocument/diagnostic`."""

from __future__ import annotations

import hashlib

from lsprotocol import types

from fx_lsp.server.display.diagnostics import diagnostics_of
from fx_lsp.server.session import Session

OPTIONS = types.DiagnosticOptions(identifier="fx-lsp", inter_file_dependencies=True, workspace_diagnostics=False)


async def document_diagnostic(
    session: Session, params: types.DocumentDiagnosticParams
) -> types.DocumentDiagnosticReport:
    """Return the problems of a document at this moment; a refresh follows later traces.

    They are empty for views and cells of notebooks, whose problems are published, and for clients that are not told of
    new problems.
    """
    document = session.documents.get(params.text_document.uri) if session.capabilities.pulls else None
    shown = (None if document is None or document.cells else diagnostics_of(session, document)) or []
    result_id = hashlib.sha256(repr(shown).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    if params.previous_result_id == result_id:
        return types.RelatedUnchangedDocumentDiagnosticReport(result_id=result_id)
    return types.RelatedFullDocumentDiagnosticReport(items=shown, result_id=result_id)
