"""Handle `workspace/textDocumentContent` and `fxLsp/document`: the text of a view."""

from __future__ import annotations

from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from fx_lsp.features.wording.uris import View, parse_uri
from fx_lsp.server.display.views import Views

DOCUMENT = "fxLsp/document"


async def text_document_content(
    views: Views, params: types.TextDocumentContentParams
) -> types.TextDocumentContentResult:
    """Answer `workspace/textDocumentContent`."""
    return types.TextDocumentContentResult(text=await views.text(view_of(params)))


async def document(views: Views, params: Any) -> dict[str, str]:
    """Answer `fxLsp/document`: the same for clients without it."""
    view = view_of(params)
    language = "python" if view.is_code else "plaintext"
    return {"uri": str(params.uri), "text": await views.text(view), "languageId": language}


def view_of(params: Any) -> View:
    """Return the view of a client's URI. Raises JsonRpcInvalidParams."""
    uri = getattr(params, "uri", None)
    view = parse_uri(uri) if isinstance(uri, str) else None
    if view is None:
        raise JsonRpcInvalidParams(f"{uri!r} is not the URI of a view")
    return view
