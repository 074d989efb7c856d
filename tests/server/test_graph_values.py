"""What an editor can ask about the values in a graph."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from inline_snapshot import snapshot
from lsprotocol import types
from sessions import FULL, Editor, editor, traced

TEXT = "def f(x): return x + 1\n"
METHODS = ("definition", "references", "documentSymbol", "foldingRange", "callHierarchy")
OF_OTHER_SERVERS = (
    "definition",
    "declaration",
    "type_definition",
    "implementation",
    "references",
    "document_symbol",
    "document_highlight",
    "folding_range",
    "selection_range",
    "semantic_tokens",
    "call_hierarchy",
    "type_hierarchy",
    "signature_help",
    "rename",
    "document_formatting",
    "document_range_formatting",
)
"""What type checkers and linters answer for Python files."""
TOKENS = {
    "dynamicRegistration": True,
    "requests": {"full": True},
    "tokenTypes": [],
    "tokenModifiers": [],
    "formats": [],
}
DYNAMIC = {
    **FULL,
    "textDocument": {
        **FULL["textDocument"],
        **{name: {"dynamicRegistration": True} for name in METHODS},
        "semanticTokens": TOKENS,
    },
}


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[tuple[Editor, str, list[str]]]:
    """An editor, and the URI and the lines of the graph of f."""
    async with traced(folder, TEXT) as (e, uri):
        view = (await e.command("fxLsp.showStage", uri, "f", "inference"))["uri"]
        yield e, view, (await e.document(view)).splitlines()


def place(lines: list[str], text: str, inner: str) -> types.Position:
    line = next(n for n, row in enumerate(lines) if text in row)
    return types.Position(line, lines[line].index(text) + text.index(inner))


def shown(lines: list[str], range_: types.Range) -> str:
    return lines[range_.start.line][range_.start.character : range_.end.character]


async def test_what_is_known_of_values_in_a_graph(tmp_path: Path):
    async with opened(tmp_path) as (e, uri, lines):
        document, at = types.TextDocumentIdentifier(uri), place(lines, "(x, 1)", "x")
        (found,) = await e.client.text_document_definition_async(types.DefinitionParams(document, at))
        assert (found.uri, shown(lines, found.range)) == (uri, "x")
        assert lines[found.range.start.line].startswith("def inference(")
        context = types.ReferenceContext(include_declaration=True)
        places = await e.client.text_document_references_async(types.ReferenceParams(context, document, at))
        assert [lines[place.range.start.line].strip() for place in places] == snapshot(
            ["def inference(x: f32[2, 3]):", "y: f32[2, 3] = aten.add.Tensor(x, 1)"]
        )

        # the definition of a line is the code that it comes from
        at = place(lines, "y: f32", "y")
        (found,) = await e.client.text_document_definition_async(
            types.DefinitionParams(types.TextDocumentIdentifier(uri), at)
        )
        assert found.uri == (tmp_path / "m.py").as_uri()

        # who reads whom
        at = place(lines, "y: f32", "y")
        (item,) = await e.client.text_document_prepare_call_hierarchy_async(
            types.CallHierarchyPrepareParams(types.TextDocumentIdentifier(uri), at)
        )
        assert (item.name, item.detail) == snapshot(("y", "aten.add.Tensor · f32[2, 3]"))
        sources = await e.client.call_hierarchy_outgoing_calls_async(types.CallHierarchyOutgoingCallsParams(item))
        assert [call.to.name for call in sources] == snapshot(["x"])

        # a hover says who reads a value
        at = place(lines, "(x, 1)", "x")
        assert await e.hover(uri, at.line, at.character) == snapshot("""\
```python
x: f32[2, 3]
```

- read by y\
""")

        # outline and folds
        document = types.TextDocumentIdentifier(uri)
        (graph,) = await e.client.text_document_document_symbol_async(types.DocumentSymbolParams(document))
        assert (graph.name, [(c.name, [v.name for v in c.children]) for c in graph.children]) == snapshot(
            ("inference", [("inputs", ["x"]), ("m.py:1  def f(x): return x + 1", ["y"])])
        )
        folds = await e.client.text_document_folding_range_async(types.FoldingRangeParams(document))
        assert [(lines[f.start_line], lines[f.end_line], f.kind) for f in folds] == snapshot(
            [
                ("# m.py::f · inference graph · 1 op", "#   x: ~f32[2, 3]   (search)", "comment"),
                ("def inference(x: f32[2, 3]):", "    return y", None),
                ("    # m.py:1  def f(x): return x + 1", "    return y", None),
            ]
        )

        # tokens have positions relative to one another
        found = await e.client.text_document_semantic_tokens_full_async(
            types.SemanticTokensParams(types.TextDocumentIdentifier(uri))
        )
        assert decoded(lines, list(found.data))[-6:] == snapshot(
            [
                ("# m.py:1  def f(x): return x + 1", 5),
                ("y", 1),
                ("f32[2, 3]", 4),
                ("aten.add.Tensor", 3),
                ("x", 0),
                ("y", 1),
            ]
        )


async def test_python_files_have_none_of_these_from_us(tmp_path: Path):
    registered: list[Any] = []
    async with editor(tmp_path, DYNAMIC) as e:
        e.client.protocol.fm.features[types.CLIENT_REGISTER_CAPABILITY] = lambda params: registered.extend(
            params.registrations
        )
        capabilities = e.result.capabilities
        assert [name for name in OF_OTHER_SERVERS if getattr(capabilities, f"{name}_provider")] == []
        await e.until(lambda: registered)
        views = [r.register_options for r in registered if "textDocument" in r.method]
        assert {selector["scheme"] for options in views for selector in options["documentSelector"]} == {"fx-lsp"}
        assert sorted(r.method for r in registered if "textDocument" in r.method) == snapshot(
            [
                "textDocument/definition",
                "textDocument/documentSymbol",
                "textDocument/foldingRange",
                "textDocument/prepareCallHierarchy",
                "textDocument/references",
                "textDocument/semanticTokens",
            ]
        )
        uri = e.open("m.py", TEXT)
        await e.problems(uri)
        document = types.TextDocumentIdentifier(uri)
        assert await e.client.text_document_document_symbol_async(types.DocumentSymbolParams(document)) is None


def decoded(lines: list[str], data: list[int]) -> list[tuple[str, int]]:
    """The texts of tokens, with the index of their kind."""
    found, line, column = [], 0, 0
    for i in range(0, len(data), 5):
        delta, start, length, kind, _ = data[i : i + 5]
        line, column = line + delta, start + (0 if delta else column)
        found.append((lines[line][column : column + length], kind))
    return found
