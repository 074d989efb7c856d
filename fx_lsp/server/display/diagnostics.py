"""Publish the problems of files, or offer them to clients that pull, whenever the engine has new results on a file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lsprotocol import types

from fx_lsp.features.kernel_files import KernelCheck, check_problems
from fx_lsp.features.kernels import kernel_problems, kernels_of
from fx_lsp.features.source.comments import comment_problems, without_doubles
from fx_lsp.features.source.findings import told, unknown_codes, unused_ignores
from fx_lsp.features.wording.problems import Problem, page_of, problems, work_problems
from fx_lsp.features.wording.unreached import faded
from fx_lsp.features.wording.uris import View, format_uri
from fx_lsp.model import Trace
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.client import Client
from fx_lsp.server.documents import OpenText
from fx_lsp.server.session import Session
from fx_lsp.tracing.source.project import read_project

if TYPE_CHECKING:
    from fx_lsp.tracing.engine import FileState


def publish(session: Session, client: Client, file: str) -> None:
    """Publish the problems of a file, or let the client pull them. Those of a notebook's cells are published."""
    document = session.documents.of_file(file)
    diagnostics = None if document is None else diagnostics_of(session, document)
    if document is None or diagnostics is None:
        return
    if session.capabilities.pulls and not document.cells:
        client.offer(document.uri, diagnostics)
        return
    for uri, version, own in document.diagnostics(diagnostics):
        client.publish(uri, own, version if session.capabilities.diagnostic_version else None)


def diagnostics_of(
    session: Session, document: OpenText, state: FileState | None = None
) -> list[types.Diagnostic] | None:
    """Return the problems of a file in a state, without one in that of the open file at this moment; None before the
    engine has read it.
    """
    file, state = document.file, state or session.state(document.uri)
    if state is None:
        return None
    every = problems(file, [(t.target, t.outcome) for t in state.targets], state.syntax)
    traced = told(every, session.settings.problems, state.text, read_project(file).severities)
    written = comment_problems(file, state.text, [t.target for t in state.targets])
    shown = without_doubles((*written, *unknown_codes(file, state.text), *unused(state, every)), traced)
    if session.engine is not None:
        shown = (*shown, *work_problems(session.engine.remarks(file)))
    shown = (*shown, *check_problems_below(session.checks.get(file), document.text))
    if session.capabilities.faded and state.text == document.text:
        shown = (*shown, *faded(state.text, [(t.target, t.outcome) for t in state.targets if not t.stale]))
    if not session.settings.diagnostics:
        shown = ()

    related = session.location if session.capabilities.related_information else None
    explained = session.capabilities.code_pages
    return [
        to_proto.diagnostic(
            p, document.lines, session.encoding, related, (p.page or page_of(p.code)) if explained else None
        )
        for p in shown
    ]


def unused(state: FileState, every: Iterable[Problem] | None = None) -> list[Problem]:
    """Return the comments that ignore none of the problems of a file, once all its targets are traced."""
    outcomes = [(t.target, t.outcome) for t in state.targets if t.outcome is not None and not t.stale]
    if len(outcomes) < len(state.targets):
        return []
    every = problems(state.file, outcomes, state.syntax) if every is None else every
    return [*unused_ignores(state.file, state.text, outcomes, every)]


def check_problems_below(check: KernelCheck | None, text: str) -> tuple[Problem, ...]:
    """Return the errors of a check in the text of a file, which may have comments with those at its top."""
    if check is None:
        return ()
    from fx_lsp.tracing.kernel_files.generated import without_failure

    head, kernels = without_failure(text.replace("\r\n", "\n"))
    return check_problems(check, kernels, head.count("\n"))


def publish_kernels(session: Session, client: Client, view: View) -> None:
    """Publish the problems of a shown file of kernels, including those of its compilation."""
    uri, shown = session.uri_of_view(view), session.views.rendered(view)
    if uri is None or shown is None or view != kernels_of(view) or session.engine is None:
        return
    works = filter(None, (view.work, session.views.compiled(view)))
    outcomes = [session.engine.known(view.file, view.name, work) for work in works]
    remarks = [remark for outcome in outcomes if isinstance(outcome, Trace) for remark in outcome.remarks]
    text, check, above = shown.document.text, session.checks.get(format_uri(view)), session.views.above(view)
    lines = from_proto.split_lines(text)
    problems_shown = (*kernel_problems(remarks, view.name), *check_problems(check, text))
    diagnostics = [to_proto.diagnostic(p, lines, session.encoding, None) for p in problems_shown]
    for diagnostic in diagnostics:
        diagnostic.range = to_proto.below(diagnostic.range, above)
    client.publish(uri, diagnostics if session.settings.diagnostics else [])


def publish_check(session: Session, client: Client, file: str, text: str) -> None:
    """Publish the errors of the check of a file of kernels with this text, if the client has not opened it."""
    if session.documents.of_file(file) is None:
        lines = from_proto.split_lines(text)
        shown = check_problems_below(session.checks.get(file), text) if session.settings.diagnostics else ()
        diagnostics = [to_proto.diagnostic(p, lines, session.encoding, None) for p in shown]
        client.publish(session.uri_of_file(file), diagnostics)
