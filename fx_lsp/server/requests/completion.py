"""Handle `textDocument/completion`, inside of `# fx:` comments only."""

from __future__ import annotations

from lsprotocol import types

from fx_lsp.features.source.completion import completions, in_comment
from fx_lsp.features.source.pin import TextChange
from fx_lsp.server import from_proto, to_proto
from fx_lsp.server.session import Session

# Characters of ordinary code (spaces, commas, brackets, colons) are left out: clients also ask while a word is typed,
# and these two are at places where no word has begun yet.
OPTIONS = types.CompletionOptions(trigger_characters=["=", "@"])


async def completion(session: Session, params: types.CompletionParams) -> list[types.CompletionItem] | None:
    """Return the completions at the cursor; None at once for every line of code."""
    uri = params.text_document.uri
    document = session.documents.get(uri)
    if document is None or params.position.line >= len(document.lines):
        return None
    line, col = from_proto.position(document.lines, params.position, session.encoding)
    content = document.lines[line - 1].rstrip("\r\n")
    if not in_comment(content.encode()[:col].decode(errors="ignore")) or (state := session.state(uri)) is None:
        return None
    offers = completions(document.text, content, (line, col), [(t.target, t.outcome) for t in state.targets])
    changes = (TextChange(line, offer.col, line, col, offer.text) for offer in offers)
    edits = (to_proto.text_edit(change, document.lines, session.encoding) for change in changes)
    return [
        to_proto.completion(offer, place, edit) for place, (offer, edit) in enumerate(zip(offers, edits, strict=True))
    ]
