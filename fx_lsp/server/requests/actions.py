"""Handle `textDocument/codeAction`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from lsprotocol import types

from fx_lsp.features.source.checkpoint import STAGE, Checkpoint, checkpoint
from fx_lsp.features.source.findings import ignoring, without_ignore
from fx_lsp.features.source.pin import Pin, pin
from fx_lsp.features.wording.problems import Problem
from fx_lsp.model import Failure, Span
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.display.diagnostics import unused
from fx_lsp.server.display.text_edits import workspace_edit
from fx_lsp.server.documents import OpenText
from fx_lsp.server.session import Session

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import TargetState

_FIX_ALL = f"{types.CodeActionKind.SourceFixAll.value}.fx"
OPTIONS = types.CodeActionOptions(
    code_action_kinds=[types.CodeActionKind.RefactorRewrite, types.CodeActionKind.QuickFix, _FIX_ALL]
)

_REWRITE: str = types.CodeActionKind.RefactorRewrite.value
_TITLE = "Checkpoint this region"


async def code_action(session: Session, params: types.CodeActionParams) -> list[types.CodeAction] | None:
    """Return the actions at the cursor. One writes the inputs of the definition: as a rewrite, or as a fix of a
    failure.

    Others turn traced statements into a checkpoint, or show the memory that it would save, and add a comment that
    ignores a finding. A comment that ignores nothing is removed; if the client asks for it, all of them are.
    """
    uri = params.text_document.uri
    document, state = session.documents.get(uri), session.state(uri)
    if document is None or state is None or not session.capabilities.code_actions or state.text != document.text:
        return None
    first, last = _selected(params.range)
    actions: list[types.CodeAction] = []
    for target in state.targets:
        if target.outcome is None or target.stale:
            continue
        failed = isinstance(target.outcome, Failure)
        mended = [d for d in params.context.diagnostics if failed and _is_about(d, target, document, session.encoding)]
        at = target.target.name_span.line if mended else first
        comment = pin(document.text, target.target, target.outcome, at)
        if comment is not None and _wanted(_kind(comment), params.context.only):
            edit = workspace_edit(session, document, comment.edits)
            actions.append(types.CodeAction(comment.title, kind=_kind(comment), diagnostics=mended or None, edit=edit))
    if _wanted(_text(types.CodeActionKind.QuickFix), params.context.only):
        actions += _ignored(session, document, params.context.diagnostics)
        actions += _removed(session, document, unused(state), params.context.diagnostics)
    if params.context.only and _wanted(_FIX_ALL, params.context.only):
        actions += _all_removed(session, document, unused(state))
    if _wanted(_REWRITE, params.context.only):
        actions += _checkpoints(session, document, state.targets, first, last)
    return actions


def _ignored(
    session: Session, document: OpenText, diagnostics: Sequence[types.Diagnostic]
) -> Iterator[types.CodeAction]:
    """Yield, for each of the diagnostics, an action that adds a comment to ignore it."""
    for diagnostic in diagnostics:
        if diagnostic.source != "fx-lsp" or not isinstance(diagnostic.code, str):
            continue
        first, last = from_proto.line_range(diagnostic.range)
        comment = ignoring(document.text, Span(document.file, first, 0, last, 0), diagnostic.code)
        if comment is not None:
            title, edit = f"Ignore `{diagnostic.code}` here", workspace_edit(session, document, [comment])
            kind = types.CodeActionKind.QuickFix
            yield types.CodeAction(title, kind=kind, diagnostics=[diagnostic], edit=edit)


def _removed(
    session: Session, document: OpenText, unused: Iterable[Problem], diagnostics: Sequence[types.Diagnostic]
) -> Iterator[types.CodeAction]:
    """Yield, for each of the diagnostics on a comment that ignores nothing, an action that removes it."""
    for problem in unused:
        place = to_proto.range_(document.lines, problem.span, session.encoding)
        change = without_ignore(document.text, problem.span)
        about = [d for d in diagnostics if d.source == "fx-lsp" and d.range == place]
        if about and change is not None:
            edit = workspace_edit(session, document, [change])
            kind = types.CodeActionKind.QuickFix
            yield types.CodeAction("Remove this comment", kind=kind, diagnostics=about, edit=edit)


def _all_removed(session: Session, document: OpenText, unused: Iterable[Problem]) -> Iterator[types.CodeAction]:
    """Yield the action that makes all edits of quick fixes that change nothing but comments which ignore nothing."""
    changes = [change for problem in unused if (change := without_ignore(document.text, problem.span)) is not None]
    if changes:
        edit = workspace_edit(session, document, changes)
        yield types.CodeAction("Remove the comments that ignore nothing", kind=_FIX_ALL, edit=edit)


def _selected(range_: types.Range) -> tuple[int, int]:
    """Return the lines of a selection, without the last if the selection ends at its beginning."""
    first, last = from_proto.line_range(range_)
    return first, last - (last > first and range_.end.character == 0)


def _checkpoints(
    session: Session, document: OpenText, targets: Sequence[TargetState], first: int, last: int
) -> Iterator[types.CodeAction]:
    """Yield checkpoint actions of the innermost target that contains the lines."""
    innermost: dict[str, Checkpoint] = {}
    for state in sorted(targets, key=lambda s: s.target.span.line):
        if state.outcome is not None and not state.stale:
            region = checkpoint(document.text, state.target, state.outcome, first, last)
            innermost = {state.target.name: region} if region is not None else innermost
    for name, region in innermost.items():
        shown = types.Command(_TITLE, to_proto.SHOW_STAGE, arguments=[document.uri, name, STAGE, region.work])
        yield types.CodeAction(f"{_TITLE}: show what it saves", kind=_REWRITE, command=shown)
        if region.edits:
            edit = workspace_edit(session, document, region.edits)
            yield types.CodeAction(f"{_TITLE}: call it through torch.utils.checkpoint", kind=_REWRITE, edit=edit)


def _is_about(diagnostic: types.Diagnostic, state: TargetState, document: OpenText, encoding: str) -> bool:
    """Return True if a diagnostic is from fx-lsp and inside of the target."""
    span = to_proto.range_(document.lines, state.target.span, encoding)
    inside = span.start.line <= diagnostic.range.start.line <= span.end.line
    return diagnostic.source == "fx-lsp" and diagnostic.code != "comment" and inside


def _wanted(kind: str, only: Sequence[types.CodeActionKind | str] | None) -> bool:
    return not only or any(kind == str(o) or kind.startswith(f"{o}.") for o in map(_text, only))


def _kind(comment: Pin) -> str:
    return _text(types.CodeActionKind.QuickFix) if comment.mends else _REWRITE


def _text(kind: types.CodeActionKind | str) -> str:
    return kind.value if isinstance(kind, types.CodeActionKind) else kind
