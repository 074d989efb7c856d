"""The cells of a notebook are one module, and what is known of it appears in its cells."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types
from sessions import FULL, REAL, Editor, ask, editor
from warm import warm_python

CLIENT: dict[str, Any] = {
    **FULL,
    "notebookDocument": {"synchronization": {}},
    "workspace": {**FULL["workspace"], "workspaceEdit": {"documentChanges": True}},
    "textDocument": {
        **FULL["textDocument"],
        "codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}},
    },
}


class NotebookEditor(Editor):
    """An editor with notebooks, whose cells have the URIs of VS Code."""

    def open_notebook(self, texts: Sequence[str], name: str = "book.ipynb") -> tuple[str, list[str]]:
        """Opens a notebook of Python cells; returns its URI and those of the cells."""
        uri = (self.folder / name).as_uri()
        cells = [f"vscode-notebook-cell:{self.folder / name}#{number}" for number in range(len(texts))]
        document = types.NotebookDocument(uri, "jupyter-notebook", 1, [code(cell) for cell in cells])
        items = [python(*pair) for pair in zip(cells, texts, strict=True)]
        self.client.notebook_document_did_open(types.DidOpenNotebookDocumentParams(document, items))
        return uri, cells

    def change_notebook(self, uri: str, version: int, changes: types.NotebookDocumentCellChanges) -> None:
        document = types.VersionedNotebookDocumentIdentifier(version, uri)
        event = types.NotebookDocumentChangeEvent(cells=changes)
        self.client.notebook_document_did_change(types.DidChangeNotebookDocumentParams(document, event))

    def edit_cell(self, uri: str, cell: str, version: int, text: str, range_: types.Range | None = None) -> None:
        """Replaces a range of a cell, or all of it."""
        change: types.TextDocumentContentChangeEvent = types.TextDocumentContentChangeWholeDocument(text)
        if range_ is not None:
            change = types.TextDocumentContentChangePartial(range_, text)
        document = types.VersionedTextDocumentIdentifier(version, cell)
        edited = types.NotebookDocumentCellContentChanges(document, [change])
        self.change_notebook(uri, version, types.NotebookDocumentCellChanges(text_content=[edited]))

    def replace_cells(self, uri: str, first: int, number: int, cells: Sequence[str], **texts: list[object]) -> None:
        """Puts cells in the place of others; `did_open` are the texts of new ones, `did_close` the removed ones."""
        array = types.NotebookCellArrayChange(first, number, [code(cell) for cell in cells])
        structure = types.NotebookDocumentCellChangeStructure(array, **texts)  # type: ignore[arg-type]
        self.change_notebook(uri, 2, types.NotebookDocumentCellChanges(structure=structure))

    async def lines(self, cell: str) -> list[int]:
        """The lines of a cell that have lenses, once each."""
        return sorted({lens.range.start.line for lens in await self.lenses(cell)})


def code(cell: str) -> types.NotebookCell:
    return types.NotebookCell(types.NotebookCellKind.Code, cell)


def python(cell: str, text: str, language: str = "python") -> types.TextDocumentItem:
    return types.TextDocumentItem(cell, language, 1, text)


def at(line: int, first: int, last: int) -> types.Range:
    return types.Range(types.Position(line, first), types.Position(line, last))


F, G = "def f(x): return x + 1", "def g(x): return x * 2"


async def test_the_server_announces_notebooks_with_python_cells(tmp_path: Path):
    async with editor(tmp_path, CLIENT) as e:
        assert e.result is not None
        sync = e.result.capabilities.notebook_document_sync
        assert isinstance(sync, types.NotebookDocumentSyncOptions)
        kinds = [selector.notebook.notebook_type for selector in sync.notebook_selector]  # type: ignore[union-attr]
        assert kinds == ["jupyter-notebook", "interactive"]
        assert {cell.language for selector in sync.notebook_selector for cell in selector.cells or ()} == {"python"}
    async with editor(tmp_path, FULL) as e:
        assert e.result is not None
        assert e.result.capabilities.notebook_document_sync is None


async def test_each_cell_shows_what_is_in_it(tmp_path: Path):
    async with editor(tmp_path, CLIENT, make=NotebookEditor) as e:
        _, (first, second, third) = e.open_notebook(
            [f"import torch\n{F}\n", "y = 1", "def g(x): return '🙂' + x\n# end"]
        )
        assert await e.lines(first) == [1]
        assert await e.lines(second) == []
        assert await e.lines(third) == [0]
        assert [hint.position for hint in await e.hints(first)] == [types.Position(1, len(F))]
        assert [hint.position for hint in await e.hints(third)] == [types.Position(0, 25)]
        assert await e.hints(second) == []
        assert "g" in (await e.hover(third, 0, 4) or "")
        assert await e.hover(second, 0, 4) is None
        assert await e.hover(second, 10_000, 0) is None
        hovered = await e.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(third), types.Position(0, 4))
        )
        assert hovered is not None
        assert hovered.range == at(0, 4, 5)


async def test_problems_are_in_their_cells(tmp_path: Path):
    async with editor(tmp_path, CLIENT, make=NotebookEditor) as e:
        uri, (first, second) = e.open_notebook(["import torch\n", "def f(x): return fail(x)"])
        assert await e.problems(first) == []
        (problem,) = await e.problems(second)
        assert problem.range == at(0, 17, 24)
        assert uri not in e.client.diagnostics
        e.edit_cell(uri, second, 2, "\n\n", types.Range(types.Position(0, 0), types.Position(0, 0)))
        await e.until(lambda: [p.range for p in e.client.diagnostics[second]] == [at(2, 17, 24)])
        e.edit_cell(uri, first, 2, "def def")
        await e.until(lambda: [p.code for p in e.client.diagnostics[first]] == ["syntax"])
        await e.until(lambda: not any(p.code == "syntax" for p in e.client.diagnostics[second]))
        e.client.notebook_document_did_close(
            types.DidCloseNotebookDocumentParams(
                types.NotebookDocumentIdentifier(uri), [types.TextDocumentIdentifier(c) for c in (first, second)]
            )
        )
        await e.until(lambda: not e.client.diagnostics[first] and not e.client.diagnostics[second])
        assert await e.lenses(second) == []


async def test_messages_name_cells_instead_of_lines(tmp_path: Path):
    async with editor(tmp_path, CLIENT, make=NotebookEditor) as e:
        uri, (first, second) = e.open_notebook(["import torch\n", "def f(x): return fail(blames)"])
        (problem,) = await e.problems(second)
        assert problem.message == "sizes do not fit; code cell 1, line 1: made here."
        assert "code cell 1, line 1" in (await e.hover(second, 0, 4) or "")
        e.replace_cells(uri, 0, 1, [], did_close=[types.TextDocumentIdentifier(first)])
        await e.until(lambda: "code cell 1, line 1" in e.client.diagnostics[second][0].message)
        other = e.open("m.py", "def f(x): return fail(blames)\n")
        (problem,) = await e.problems(other)
        assert problem.message == "sizes do not fit; line 1: made here."


async def test_an_edit_moves_what_is_below_it_in_the_same_cell_only(tmp_path: Path):
    async with editor(tmp_path, CLIENT, make=NotebookEditor) as e:
        uri, (first, second) = e.open_notebook([F, G])
        start = types.Position(0, 0)
        e.edit_cell(uri, first, 2, "# 🙂\n", types.Range(start, start))
        e.edit_cell(uri, first, 3, "é", types.Range(types.Position(0, 2), types.Position(0, 4)))
        assert await e.lines(first) == [1]
        assert await e.lines(second) == [0]
        view = await e.document(f"fx-lsp:{tmp_path}/book.ipynb/g.inference.py")
        assert "x * 2" in view
        e.edit_cell(uri, "vscode-notebook-cell:unknown", 4, "nothing")
        assert await e.lines(first) == [1]


async def test_cells_are_moved_added_and_removed(tmp_path: Path):
    async with editor(tmp_path, CLIENT, make=NotebookEditor) as e:
        uri, (first, second) = e.open_notebook([f"\n{F}", "def g(x): return fail(x)"])
        assert len(await e.problems(second)) == 1
        e.replace_cells(uri, 0, 2, [second, first])
        assert (await e.lines(first), await e.lines(second)) == ([1], [0])
        third = "vscode-notebook-cell:third"
        e.replace_cells(uri, 1, 0, [third], did_open=[python(third, "\n\ndef h(x): return x")])
        assert (await e.lines(first), await e.lines(third), await e.lines(second)) == ([1], [2], [0])
        e.replace_cells(uri, 0, 1, [], did_close=[types.TextDocumentIdentifier(second)])
        assert (await e.lines(first), await e.lines(third), await e.lines(second)) == ([1], [2], [])
        await e.until(lambda: not e.client.diagnostics[second])


async def test_cells_of_other_kinds_and_languages_are_skipped(tmp_path: Path):
    async with editor(tmp_path, CLIENT, make=NotebookEditor) as e:
        uri, (first, second, third) = e.open_notebook(["# A title", F, "%%bash\ngit pull\n"])
        markdown = types.NotebookCell(types.NotebookCellKind.Markup, first)
        e.change_notebook(uri, 2, types.NotebookDocumentCellChanges(data=[markdown]))
        e.edit_cell(uri, first, 3, "# def def")
        assert await e.lines(second) == [0]
        shell = "vscode-notebook-cell:shell"
        e.replace_cells(uri, 0, 0, [shell], did_open=[python(shell, "def f(x): return 3", "shellscript")])
        assert await e.lenses(shell) == []
        assert await e.lines(second) == [0]
        assert await e.hover(third, 1, 2) is None
        e.change_notebook(uri, 4, types.NotebookDocumentCellChanges(data=[code(first)]))
        await e.until(lambda: [p.code for p in e.client.diagnostics.get(first, [])] == ["syntax"])


async def test_a_graph_of_a_cell_leads_back_to_it(tmp_path: Path):
    async with editor(tmp_path, CLIENT, {"virtualDocuments": True}, make=NotebookEditor) as e:
        uri, (_, second) = e.open_notebook(["import torch\n", G])
        shown = await e.command("fxLsp.showStage", second, "g", "inference")
        assert shown == {"uri": f"fx-lsp:{tmp_path}/book.ipynb/g.inference.py"}
        view = shown["uri"]
        number = next(n for n, line in enumerate((await e.document(view)).splitlines()) if "aten.add" in line)
        params = types.DefinitionParams(types.TextDocumentIdentifier(view), types.Position(number, 6))
        (place,) = await e.client.text_document_definition_async(params) or []  # type: ignore[misc]
        assert place == types.Location(second, at(0, 17, 22))
        (origin,) = await ask(e, "fxLsp/origins", uri=view)  # type: ignore[misc]
        assert (origin["uri"], origin["line"]) == (second, 0)
        related = await ask(e, "fxLsp/related", uri=second, position={"line": 0, "character": 18})
        assert [one["ranges"] for one in related if one["uri"] == second] == [  # type: ignore[attr-defined]
            [{"start": {"line": 0, "character": 17}, "end": {"line": 0, "character": 22}}]
        ]
        functions = await ask(e, "fxLsp/functions", uri=second)
        (function,) = functions["functions"]  # type: ignore[index]
        assert (function["uri"], function["range"]["start"]["line"]) == (second, 0)
        (lens, *_) = await e.lenses(second)
        assert lens.command is not None
        assert list(lens.command.arguments or ()) == [uri, "g", "inference"]


async def test_a_comment_is_completed_and_written_in_its_cell(tmp_path: Path):
    async with editor(tmp_path, CLIENT, make=NotebookEditor) as e:
        uri, (_, second) = e.open_notebook(["import torch\n", f"# fx: x=\n{F}\n"])
        params = types.CompletionParams(types.TextDocumentIdentifier(second), types.Position(0, 8))
        offers = await e.client.text_document_completion_async(params)
        assert offers
        assert {o.text_edit.range.start.line for o in offers} == {0}  # type: ignore[union-attr]
        e.edit_cell(uri, second, 7, "def f(x): return guess(x)\n")
        await e.until(lambda: any(p.code == "inputs" for p in e.client.diagnostics.get(second, [])))
        (problem,) = [p for p in e.client.diagnostics[second] if p.code == "inputs"]
        context = types.CodeActionContext([problem])
        about = types.CodeActionParams(types.TextDocumentIdentifier(second), problem.range, context)
        actions = await e.client.text_document_code_action_async(about) or []
        edits = [a.edit.document_changes[0] for a in actions if a.edit]  # type: ignore[union-attr,index]
        assert edits
        assert {(c.text_document.uri, c.text_document.version) for c in edits} == {(second, 7)}  # type: ignore
        assert {edit.range.start.line for c in edits for edit in c.edits} == {0}  # type: ignore[union-attr]
        assert {d.range.start.line for a in actions for d in a.diagnostics or ()} == {0}  # type: ignore[union-attr]


async def test_a_failure_is_shown_in_its_cell(tmp_path: Path):
    async with editor(tmp_path, CLIENT, make=NotebookEditor) as e:
        _, (_, second) = e.open_notebook(["import torch\n", "def f(x): return fail(x)"])
        await e.problems(second)
        await e.command("fxLsp.showFailure", second, "f")
        assert [(params.uri, params.selection) for params in e.client.shown_documents] == [(second, at(0, 17, 24))]


async def test_a_name_of_one_cell_is_used_in_another(tmp_path: Path):
    """The real reader of texts: definitions and magics of all cells are one module."""
    async with editor(tmp_path, CLIENT, {"trusted": False}, command=REAL, make=NotebookEditor) as e:
        _, (_, second, third) = e.open_notebook(
            [
                "%matplotlib inline\n!pip install x\ntorch?\nimport torch\nimport torch.nn as nn",
                "class Net(nn.Module):\n    def forward(self, x):\n        return x.relu()",
                "# fx: y=1\ndef f(x):\n    return Net()(x)\nf??\n",
            ]
        )
        (problem,) = await e.until(lambda: e.client.diagnostics.get(third))
        assert (problem.code, problem.range.start.line) == ("comment", 0)
        functions = await ask(e, "fxLsp/functions", uri=second)
        places = {f["name"]: (f["uri"], f["range"]["start"]["line"]) for f in functions["functions"]}  # type: ignore
        assert places == {"Net": (second, 0), "f": (third, 1)}


@pytest.mark.torch
async def test_a_notebook_is_traced(tmp_path: Path):
    """A function of the last cell calls a module of the first; a mistake there is related to the other cell."""
    first = "%matplotlib inline\nimport torch\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
    first += "        return x @ x"
    second = "# '🙂'\n# fx: x=f32[2, 3]\ndef f(x):\n    y = x.relu(); s = '🙂'; z = y + 1\n    return Net()(z)"
    options = {"interpreter": warm_python(), "virtualDocuments": True}
    async with editor(tmp_path, CLIENT, options, command=REAL, make=NotebookEditor) as e:
        _, cells = e.open_notebook([first, "!echo 'it\nx?", second])
        (problem, *_) = await e.until(lambda: e.client.diagnostics.get(cells[0]))
        assert (problem.code, problem.range) == ("shape", at(5, 15, 20))
        related = {(one.location.uri, one.location.range.start.line) for one in problem.related_information or ()}
        assert related == {(cells[2], 2)}
        assert not e.client.diagnostics.get(cells[2])
        hints = {(hint.position.line, hint.position.character): hint.label for hint in await e.hints(cells[2])}
        assert hints[3, 5] == hints[3, len("    y = x.relu(); s = '🙂'; z") + 1] == ": f32[2, 3]"
        assert "not traced: line" in " ".join(await e.titles(cells[2]))


async def test_a_client_that_pulls_gets_the_problems_of_cells_published(tmp_path: Path):
    pulls: dict[str, Any] = {
        **CLIENT,
        "workspace": {**CLIENT["workspace"], "diagnostics": {"refreshSupport": True}},
        "textDocument": {**CLIENT["textDocument"], "diagnostic": {}},
    }
    async with editor(tmp_path, pulls, make=NotebookEditor) as e:
        _, (_, second) = e.open_notebook(["import torch\n", "def f(x): return fail(x)"])
        (problem,) = await e.problems(second)
        assert problem.range == at(0, 17, 24)
        params = types.DocumentDiagnosticParams(types.TextDocumentIdentifier(second))
        report = await e.client.text_document_diagnostic_async(params)
        assert isinstance(report, types.RelatedFullDocumentDiagnosticReport)
        assert list(report.items) == []
        assert not e.client.messages


@pytest.mark.torch
async def test_code_of_cells_that_is_in_no_function(tmp_path: Path):
    options = {"interpreter": warm_python()}
    first, second = (
        "# %matplotlib\nimport torch\nfrom torch import nn",
        "\nnet = nn.Linear(8, 4)\nx = torch.randn(2, 8)",
    )
    async with editor(tmp_path, CLIENT, options, command=REAL, make=NotebookEditor) as e:
        uri, cells = e.open_notebook(
            [first, second, "size = 5", "# a product\ny = net(x) @ torch.ones(size, 3)", "z = y.sum()"]
        )
        (problem,) = await e.until(lambda: e.client.diagnostics.get(cells[3]))
        assert (problem.code, problem.range) == ("shape", at(1, 4, 32))
        assert [await e.lines(cell) for cell in cells] == [[], [1], [], [0], []]
        assert [(hint.position.line, hint.label) for hint in await e.hints(cells[1])] == [(2, ": f32[2, 8]")]
        e.edit_cell(uri, cells[2], 2, "size = 4")
        await e.until(lambda: not e.client.diagnostics.get(cells[3]))
        assert [hint.label for hint in await e.hints(cells[3]) if hint.position.character == 1] == [": f32[2, 3]"]
        assert [await e.lines(cell) for cell in cells] == [[], [1], [], [0], [0]]
