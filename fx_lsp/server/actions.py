"""`textDocument/codeAction`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lsprotocol import types

from fx_lsp.features.checkpoint import STAGE, Checkpoint, checkpoint
from fx_lsp.features.pin import Edit, Pin, pin
from fx_lsp.model import Failure
from fx_lsp.server import from_proto, to_proto

if TYPE_CHECKING:
    from fx_lsp.server.documents import Document
    from fx_lsp.server.session import Server
    from fx_lsp.tracing.engine import TargetState

OPTIONS = types.CodeActionOptions(
    code_action_kinds=[types.CodeActionKind.RefactorRewrite, types.CodeActionKind.QuickFix]
)

_REWRITE: str = types.CodeActionKind.RefactorRewrite.value
_TITLE = "Checkpoint this region"


async def code_action(server: Server, params: types.CodeActionParams) -> list[types.CodeAction] | None:
    """Writing the inputs of the definition at the cursor down: a rewrite, or a fix of what could not be traced.

    For statements of what was traced, also making them a checkpoint, or looking at what that would save.
    """
    uri = params.text_document.uri
    document, state = server.documents.get(uri), server.state(uri)
    if document is None or state is None or not server.client.code_actions or state.text != document.text:
        return None
    first, last = _selected(params.range)
    actions: list[types.CodeAction] = []
    for target in state.targets:
        if target.outcome is None or target.stale:
            continue
        failed = isinstance(target.outcome, Failure)
        mended = [d for d in params.context.diagnostics if failed and _is_about(d, target, document, server.encoding)]
        at = target.target.name_span.line if mended else first
        found = pin(document.text, target.target, target.outcome, at)
        if found is not None and _wanted(_kind(found), params.context.only):
            edit = workspace_edit(server, document, found.edits)
            actions.append(types.CodeAction(found.title, kind=_kind(found), diagnostics=mended or None, edit=edit))
    if _wanted(_REWRITE, params.context.only):
        actions += _checkpoints(server, document, state.targets, first, last)
    return actions


def _selected(range_: types.Range) -> tuple[int, int]:
    """The lines of a selection: not the last, where it ends at the beginning of that."""
    first, last = from_proto.line_range(range_)
    return first, last - (last > first and range_.end.character == 0)


def _checkpoints(
    server: Server, document: Document, targets: Sequence[TargetState], first: int, last: int
) -> Iterator[types.CodeAction]:
    """For the innermost target that the lines are part of."""
    found: dict[str, Checkpoint] = {}
    for state in sorted(targets, key=lambda s: s.target.span.line):
        if state.outcome is not None and not state.stale:
            region = checkpoint(document.text, state.target, state.outcome, first, last)
            found = {state.target.name: region} if region is not None else found
    for name, region in found.items():
        shown = types.Command(_TITLE, to_proto.SHOW_STAGE, arguments=[document.uri, name, STAGE, region.work])
        yield types.CodeAction(f"{_TITLE}: what that saves", kind=_REWRITE, command=shown)
        if region.edits:
            edit = workspace_edit(server, document, region.edits)
            yield types.CodeAction(f"{_TITLE}: call it through torch.utils.checkpoint", kind=_REWRITE, edit=edit)


def _is_about(diagnostic: types.Diagnostic, state: TargetState, document: Document, encoding: str) -> bool:
    """Whether a diagnostic is one of ours, and stands inside of the target."""
    span = to_proto.range_(document.lines, state.target.span, encoding)
    inside = span.start.line <= diagnostic.range.start.line <= span.end.line
    return diagnostic.source == "fx-lsp" and diagnostic.code != "comment" and inside


def _wanted(kind: str, only: Sequence[types.CodeActionKind | str] | None) -> bool:
    return not only or any(kind == str(o) or kind.startswith(f"{o}.") for o in map(_text, only))


def _kind(found: Pin) -> str:
    return _text(types.CodeActionKind.QuickFix) if found.mends else _REWRITE


def _text(kind: types.CodeActionKind | str) -> str:
    return kind.value if isinstance(kind, types.CodeActionKind) else kind


def workspace_edit(server: Server, document: Document, found: Sequence[Edit]) -> types.WorkspaceEdit:
    """Changes of one document, of this version where the client can tell."""
    edits = [to_proto.text_edit(edit, document.lines, server.encoding) for edit in found]
    if server.client.document_changes:
        known = types.OptionalVersionedTextDocumentIdentifier(uri=document.uri, version=document.version)
        return types.WorkspaceEdit(document_changes=[types.TextDocumentEdit(text_document=known, edits=edits)])
    return types.WorkspaceEdit(changes={document.uri: edits})
