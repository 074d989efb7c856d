"""`textDocument/publishDiagnostics`, whenever the engine knows something new of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lsprotocol import types

from fx_lsp.features.comments import comment_problems, without_doubles
from fx_lsp.features.kernels import kernel_problems, kernels_of
from fx_lsp.features.problems import problems, work_problems
from fx_lsp.features.unreached import faded
from fx_lsp.features.uris import View
from fx_lsp.model import Span, Trace
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.documents import read_source, uri_of_file

if TYPE_CHECKING:
    from fx_lsp.server.session import Server


def publish(server: Server, file: str) -> None:
    """Publishes the problems of a file, unless the client has the same list already."""
    document = server.documents.of_file(file)
    state = None if server.engine is None else server.engine.state(file)
    if document is None or state is None:
        return
    traced = problems(file, [(t.target, t.outcome) for t in state.targets], state.syntax)
    found = without_doubles(comment_problems(file, state.text, [t.target for t in state.targets]), traced)
    if server.engine is not None:
        found = (*found, *work_problems(server.engine.remarks(file)))
    if server.client.faded and state.text == document.text:
        found = (*found, *faded(state.text, [(t.target, t.outcome) for t in state.targets if not t.stale]))
    if not server.settings.diagnostics:
        found = ()

    def location(span: Span) -> types.Location:
        known = server.documents.of_file(span.file)
        lines = known.lines if known is not None else from_proto.split_lines(read_source(server, span.file) or "")
        return types.Location(uri=uri_of_file(server, span.file), range=to_proto.range_(lines, span, server.encoding))

    related = location if server.client.related_information else None
    diagnostics = [to_proto.diagnostic(p, document.lines, server.encoding, related) for p in found]
    if server.published(document.uri, diagnostics):
        server.text_document_publish_diagnostics(
            types.PublishDiagnosticsParams(
                uri=document.uri,
                diagnostics=diagnostics,
                version=document.version if server.client.diagnostic_version else None,
            )
        )


def publish_kernels(server: Server, view: View) -> None:
    """Publishes what there is to say of a file of kernels that the client shows, and what compiling it said."""
    uri, shown = server.views.uri(view), server.views.rendered(view)
    if uri is None or shown is None or view != kernels_of(view) or server.engine is None:
        return
    works = filter(None, (view.work, server.views.compiled(view)))
    outcomes = [server.engine.known(view.file, view.name, work) for work in works]
    found = kernel_problems([r for o in outcomes if isinstance(o, Trace) for r in o.remarks], view.name)
    lines = from_proto.split_lines(shown.document.text)
    diagnostics = [to_proto.diagnostic(p, lines, server.encoding, None) for p in found]
    if not server.settings.diagnostics:
        diagnostics = []
    if server.published(uri, diagnostics):
        server.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=diagnostics))
