"""`textDocument/codeAction`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsprotocol import types

from fx_lsp.features.pin import Pin, pin
from fx_lsp.model import Failure
from fx_lsp.server import from_proto, to_proto

if TYPE_CHECKING:
    from fx_lsp.server.documents import Document
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.engine import TargetState

OPTIONS = types.CodeActionOptions(
    code_action_kinds=[types.CodeActionKind.RefactorRewrite, types.CodeActionKind.QuickFix]
)


async def code_action(server: Server, params: types.CodeActionParams) -> list[types.CodeAction] | None:
    """Writing the inputs of the definition at the cursor down: a rewrite, or a fix of what could not be traced."""
    uri = params.text_document.uri
    document, state = server.documents.get(uri), server.state(uri)
    if document is None or state is None or not server.client.code_actions or state.text != document.text:
        return None
    line = from_proto.position(document.lines, params.range.start, server.encoding)[0]
    actions: list[types.CodeAction] = []
    for target in state.targets:
        if target.outcome is None or target.stale:
            continue
        failed = isinstance(target.outcome, Failure)
        mended = [d for d in params.context.diagnostics if failed and _is_about(d, target, document, server.encoding)]
        at = target.target.name_span.line if mended else line
        found = pin(document.text, target.target, target.outcome, at)
        if found is not None and _wanted(found, params.context.only):
            actions.append(_action(server, document, found, mended))
    return actions


def _is_about(diagnostic: types.Diagnostic, state: TargetState, document: Document, encoding: str) -> bool:
    """Whether a diagnostic is one of ours, and stands inside of the target."""
    span = to_proto.range_(document.lines, state.target.span, encoding)
    inside = span.start.line <= diagnostic.range.start.line <= span.end.line
    return diagnostic.source == "fx-lsp" and diagnostic.code != "comment" and inside


def _wanted(found: Pin, only: Sequence[types.CodeActionKind | str] | None) -> bool:
    kind = _kind(found)
    return not only or any(kind == str(o) or kind.startswith(f"{o}.") for o in map(_text, only))


def _kind(found: Pin) -> str:
    return _text(types.CodeActionKind.QuickFix if found.mends else types.CodeActionKind.RefactorRewrite)


def _text(kind: types.CodeActionKind | str) -> str:
    return kind.value if isinstance(kind, types.CodeActionKind) else kind


def _action(server: Server, document: Document, found: Pin, mended: list[types.Diagnostic]) -> types.CodeAction:
    edits = [to_proto.text_edit(edit, document.lines, server.encoding) for edit in found.edits]
    if server.client.document_changes:
        known = types.OptionalVersionedTextDocumentIdentifier(uri=document.uri, version=document.version)
        change = types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(text_document=known, edits=edits)])
    else:
        change = types.WorkspaceEdit(changes={document.uri: edits})
    return types.CodeAction(found.title, kind=_kind(found), diagnostics=mended or None, edit=change)
