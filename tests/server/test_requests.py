"""What the editor shows, with an engine that knows its answers."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from lsprotocol import types
from lsprotocol.types import DiagnosticSeverity, Position
from pygls.exceptions import JsonRpcException
from sessions import FULL, editor, traced

TEXT = "def f(x): return x + 1\n\ndef broken(x): return fail\n"


async def test_lenses_hovers_and_a_failure(tmp_path: Path):
    async with traced(tmp_path, TEXT) as (e, uri):
        await e.until(lambda: types.WORKSPACE_CODE_LENS_REFRESH in e.refreshed)
        lenses = await e.lenses(uri)
        assert [(lens.range.start.line, lens.command.title, lens.command.command) for lens in lenses] == snapshot(
            [
                (0, "1 op · nothing to differentiate", "fxLsp.showStage"),
                (0, "show inference graph", "fxLsp.showStage"),
                (0, "passes", "fxLsp.showStage"),
                (0, "why not fused", "fxLsp.showStage"),
                (0, "generate Triton kernel", "fxLsp.showStage"),
                (0, "benchmark", "fxLsp.bench"),
                (2, "not traced", "fxLsp.showFailure"),
            ]
        )
        assert list(lenses[0].command.arguments) == [uri, "f", "inference"]

        # hovers
        assert await e.hover(uri, 0, 4) == snapshot("""\
```python
def f(x: ~f32[2, 3]) -> ~f32[2, 3]
```

- `x: ~f32[2, 3]` · guessed

*`~`: a guessed size; nothing in the code fixes it*

1 op inference · nothing to differentiate

```python
def inference(x: f32[2, 3]):
    # m.py:1
    y: f32[2, 3] = aten.add.Tensor(x, 1)
    return y
```

torch 2.13.0 · traced in 100 ms\
""")
        assert await e.hover(uri, 0, 19) == snapshot("""\
```python
~f32[2, 3]
```

*`~`: a guessed size; nothing in the code fixes it*

inference ~48 B read and written

inference · 1 op

```python
aten.add.Tensor(x, 1) -> f32[2, 3]
```\
""")
        assert await e.hover(uri, 2, 24) is None, "the problem says it"
        assert await e.hover(uri, 1, 0) is None

        # a failure is shown where it stands
        await e.command("fxLsp.showFailure", uri, "broken")
        assert [m.message for m in e.client.messages] == snapshot(
            ["Not traced: sizes do not fit. write the shapes down."]
        )
        (shown,) = e.client.shown_documents
        assert (shown.uri, shown.selection.start) == (uri, types.Position(2, 22))


async def test_a_client_that_resolves_tooltips_gets_them_on_request(tmp_path: Path):
    resolving = {
        **FULL,
        "textDocument": {**FULL["textDocument"], "inlayHint": {"resolveSupport": {"properties": ["tooltip"]}}},
    }
    async with traced(tmp_path, TEXT, resolving) as (e, uri):
        await e.until(lambda: types.WORKSPACE_INLAY_HINT_REFRESH in e.refreshed)
        (hint,) = await e.hints(uri)
        assert hint.tooltip is None
        assert (await e.client.inlay_hint_resolve_async(hint)).tooltip == snapshot(
            "from aten.add.Tensor · `~`: a guessed size; nothing in the code fixes it"
        )
        e.change(uri, 2, "\n" + TEXT)
        assert (await e.client.inlay_hint_resolve_async(hint)).tooltip is None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell")
async def test_the_status_has_the_processes_and_their_memory_once_all_is_traced(tmp_path: Path):
    async with traced(tmp_path, TEXT) as (e, _):
        await e.until(lambda: e.statuses and e.statuses[-1].processes is not None)
        last = e.statuses[-1]
        assert (last.quiescent, last.processes.count, last.processes.bytes) == (True, 0, 0)


async def test_a_hint_is_written_down_as_a_comment_if_the_client_resolves_edits(tmp_path: Path):
    hinting = {"inlayHint": {"resolveSupport": {"properties": ["textEdits"]}}}
    async with traced(tmp_path, TEXT, {**FULL, "textDocument": {**FULL["textDocument"], **hinting}}) as (e, uri):
        await e.until(lambda: types.WORKSPACE_INLAY_HINT_REFRESH in e.refreshed)
        (hint,) = await e.hints(uri)
        assert hint.tooltip is not None
        assert hint.text_edits is None
        (edit,) = (await e.client.inlay_hint_resolve_async(hint)).text_edits
        assert (edit.range.start, edit.new_text) == snapshot((Position(line=0, character=22), "  # ~f32[2, 3]"))
        e.change(uri, 2, "\n" + TEXT)
        assert (await e.client.inlay_hint_resolve_async(hint)).text_edits is None


async def test_targets_of_the_workspace_are_found_by_letters_of_their_names(tmp_path: Path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "net.py").write_text(
        "import torch\nclass Größe(torch.nn.Module):\n    def forward(self, x): return x + 1\n"
    )
    (tmp_path / "other.py").write_text("def helper(path): return open(path)\n")
    async with traced(tmp_path, TEXT) as (e, uri):

        async def named(query: str) -> list[Any]:
            symbols = await e.client.workspace_symbol_async(types.WorkspaceSymbolParams(query=query))
            return [(s.name, s.kind, s.location.uri, s.location.range.start) for s in symbols or ()]

        here = ("f", types.SymbolKind.Function, uri)
        there = ("Größe", types.SymbolKind.Class, (package / "net.py").as_uri())
        assert {name for name, *_ in await named("")} == {"f", "broken", "Größe"}
        assert await named("F") == [(*here, types.Position(0, 4))]
        assert await named("gße") == [(*there, types.Position(1, 6))]
        assert await named("eg") == []


async def test_hints_refresh_and_switch_off(tmp_path: Path):
    async with traced(tmp_path, TEXT, configuration={"inlayHints": {"enabled": True}}) as (e, uri):
        await e.until(lambda: types.WORKSPACE_INLAY_HINT_REFRESH in e.refreshed)
        (hint,) = await e.hints(uri)
        assert (hint.position, hint.label, hint.tooltip) == snapshot(
            (
                Position(line=0, character=22),
                "-> ~f32[2, 3]",
                "from aten.add.Tensor · `~`: a guessed size; nothing in the code fixes it",
            )
        )
        e.client.set_configuration({"fx-lsp": {"inlayHints": {"enabled": False}}})
        e.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings=None))
        while await e.hints(uri):
            await asyncio.sleep(0.01)


async def test_the_hints_of_an_answer_from_disk_are_those_of_a_new_one(tmp_path: Path):
    async with editor(tmp_path, configuration={"inlayHints": {"enabled": True}}) as e:
        (decoded,) = await e.hints(e.open("m.py", "def f(x): return x + 1\n"))
        (stored,) = await e.hints(e.open("n.py", "def f(x): return cold + 1\n"))
        assert (stored.label, stored.tooltip) == (decoded.label, decoded.tooltip)
        assert "aten.add.Tensor" in str(stored.tooltip)


async def test_problems_carry_the_version_and_go_with_the_document(tmp_path: Path):
    async with editor(tmp_path) as e:
        versions: list[int | None] = []
        published = e.client.protocol.fm.features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS]
        e.client.protocol.fm.features[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS] = lambda params: (
            versions.append(params.version),
            published(params),
        )
        uri = e.open("m.py", TEXT)
        (problem,) = await e.problems(uri)
        assert (problem.range.start, problem.range.end, problem.severity, problem.code, problem.source) == snapshot(
            (
                Position(line=2, character=22),
                Position(line=2, character=26),
                DiagnosticSeverity.Error,
                "shape",
                "fx-lsp",
            )
        )
        assert problem.message == snapshot("sizes do not fit. write the shapes down.")
        e.change(uri, 7, "def f(x): return x\n")
        await e.until(lambda: not e.client.diagnostics[uri])
        assert versions == [1, 7]
        e.change(uri, 8, "def f(x): return fail\n")
        await e.until(lambda: e.client.diagnostics[uri])
        e.client.text_document_did_close(
            types.DidCloseTextDocumentParams(text_document=types.TextDocumentIdentifier(uri=uri))
        )
        await e.until(lambda: not e.client.diagnostics[uri])


async def test_a_syntax_error_is_information(tmp_path: Path):
    async with editor(tmp_path) as e:
        (problem,) = await e.problems(e.open("m.py", "def def\n"))
        assert (problem.severity, problem.message) == (
            types.DiagnosticSeverity.Information,
            "invalid syntax. No graphs are shown until the file parses.",
        )


async def test_the_last_graph_of_a_text_that_does_not_parse_opens_as_stale(tmp_path: Path):
    async with traced(tmp_path, TEXT) as (e, uri):
        e.change(uri, 2, TEXT + "def def\n")
        await e.until(lambda: any("invalid syntax" in d.message for d in e.client.diagnostics[uri]))
        text = await e.document(f"fx-lsp:{tmp_path}/m.py/f.inference.py")
        title = text.splitlines()[0]
        assert title == "# m.py::f · inference graph · 1 op · stale: from the last version that parsed"
        assert "aten.add.Tensor(x, 1)" in text
        other = await e.document(f"fx-lsp:{tmp_path}/m.py/nothing.inference.py")
        assert other == "# **Not traced** (syntax): invalid syntax.\n"


async def test_an_open_graph_says_that_it_is_stale_while_the_text_does_not_parse(tmp_path: Path):
    """Nothing but its title changes, so that no line moves, and not before the text has been broken for a while."""
    async with traced(tmp_path, TEXT) as (e, uri):
        await e.command("fxLsp.showStage", uri, "f", "inference")
        view = f"fx-lsp:{tmp_path}/m.py/f.inference.py"
        good = await e.document(view)
        e.change(uri, 2, TEXT + "def def\n")
        await e.until(lambda: view in e.refreshed)
        title, _, rest = good.partition("\n")
        stale = f"{title} · stale: from the last version that parsed\n{rest}"
        assert await e.document(view) == stale
        assert await e.document(view) == stale
        e.refreshed.clear()
        e.change(uri, 3, TEXT)
        await e.until(lambda: view in e.refreshed)
        assert await e.document(view) == good


async def test_views_of_a_client_with_text_document_content(tmp_path: Path):
    async with traced(tmp_path, TEXT) as (e, uri):
        await e.command("fxLsp.showStage", uri, "f", "inference")
        view = f"fx-lsp:{tmp_path}/m.py/f.inference.py"
        assert [shown.uri for shown in e.client.shown_documents] == [view]
        text = await e.document(view)
        assert text == snapshot("""\
# m.py::f · inference graph · 1 op
# torch 2.13.0 · 1 op · nothing to differentiate
#   x: ~f32[2, 3]   (search)

def inference(x: f32[2, 3]):
    # m.py:1  def f(x): return x + 1
    y: f32[2, 3] = aten.add.Tensor(x, 1)
    return y
""")
        answer = await e.client.protocol.send_request_async("fxLsp/document", {"uri": view})
        assert (answer.text, answer.languageId) == (text, "python")
        e.refreshed.clear()
        e.open("", text, uri=view)
        e.change(uri, 2, TEXT.replace("x + 1", "x + 12"))
        await e.until(lambda: view in e.refreshed)
        assert "x + 12" in await e.document(view)


async def test_views_of_other_clients_are_read_only_files(tmp_path: Path):
    capabilities = {"window": {"showDocument": {"support": True}}}
    async with editor(tmp_path, capabilities) as e:
        uri = e.open("my model.py", TEXT)
        shown = await e.command("fxLsp.showStage", uri, "f")
        path = Path(shown["path"])
        assert path.name == "my_model.f.inference.py"
        assert path.is_relative_to(tmp_path / ".cache" / "fx-lsp")
        assert [s.uri for s in e.client.shown_documents] == [path.as_uri()]
        assert path.stat().st_mode & 0o777 == 0o444
        assert "return x + 1" in path.read_text()
        e.change(uri, 2, TEXT.replace("x + 1", "x + 12"))
        await e.until(lambda: "return x + 12" in path.read_text())
        e.open("", path.read_text(), uri=path.as_uri())
        assert await e.titles(path.as_uri()) == []


async def test_a_client_that_cannot_show_documents_is_told_the_path(tmp_path: Path):
    async with editor(tmp_path, {}) as e:
        shown = await e.command("fxLsp.showStage", e.open("m.py", TEXT), "f", "inference")
        assert [m.message for m in e.client.messages] == [f"f.inference.py is in {shown['path']}"]


async def test_a_view_of_a_file_that_is_not_open(tmp_path: Path):
    (tmp_path / "latin.py").write_bytes("# -*- coding: latin-1 -*-\n# é\ndef f(x): return x\n".encode("latin-1"))
    (tmp_path / "broken.py").write_bytes(b"# \xff\xfe\ndef f(x): return x\n")
    async with editor(tmp_path) as e:
        assert "latin.py:3  def f(x): return x" in await e.document(f"fx-lsp:{tmp_path}/latin.py/f.inference.py")
        assert "broken.py:2" in await e.document(f"fx-lsp:{tmp_path}/broken.py/f.inference.py")
        assert await e.document(f"fx-lsp:{tmp_path}/latin.py/f.joint.py") == snapshot(
            "# **Not traced** (unsupported): f has no joint graph.\n"
        )
        missing = await e.document(f"fx-lsp:{tmp_path}/missing.py/f.joint.py")
        assert missing == f"# There is no file {tmp_path}/missing.py.\n"


async def test_wrong_arguments_of_a_command(tmp_path: Path):
    async with editor(tmp_path) as e:
        for arguments in ([], ["nonsense"], ["nonsense", "f"], [1, 2, 3], ["git:/m.py", "f", "joint"]):
            with pytest.raises(JsonRpcException) as refused:
                await e.command("fxLsp.showStage", *arguments)
            assert refused.value.code == -32602


async def test_a_bug_is_shown_once_and_survived(tmp_path: Path):
    async with editor(tmp_path) as e:
        uri = e.open("m.py", "def f(x): return bug\n")
        for _ in range(3):
            assert await e.hover(uri, 0, 4) is None
        assert [m.message for m in e.client.messages if "hover" in m.message] == [
            "fx-lsp: internal error in textDocument/hover; see the log"
        ]
        e.change(uri, 2, "def f(x): return x\n")
        assert await e.hover(uri, 0, 4) is not None


async def test_progress_of_long_work_can_be_cancelled(tmp_path: Path):
    async with editor(tmp_path) as e:
        e.open("m.py", "def f(x): return slow\n")
        token = await e.until(lambda: next(iter(e.client.progress_reports), None))
        begin = (await e.until(lambda: e.client.progress_reports[token]))[0]
        assert (begin.title, begin.cancellable) == ("fx-lsp", True)
        e.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token=token))
        await e.until(lambda: isinstance(e.client.progress_reports[token][-1], types.WorkDoneProgressEnd))
        last = e.statuses[-1]
        assert (last.health, last.quiescent, last.message) == ("ok", True, "cancelled")


async def test_no_progress_for_clients_without_it(tmp_path: Path):
    async with editor(tmp_path, {**FULL, "window": {}}) as e:
        e.open("m.py", "def f(x): return slow\n")
        await e.until(lambda: e.statuses)
        await asyncio.sleep(0.5)
        assert not e.client.progress_reports


async def test_settings_come_from_options_and_configuration(tmp_path: Path):
    options, asked = {"limits.seconds": 5, "codeLens": {"enabled": False}}, {"limits": {"seconds": 7}}
    async with traced(tmp_path, TEXT, options=options, configuration=asked) as (e, uri):
        assert e.statuses[-1].message.endswith("seconds 7.0")
        assert await e.lenses(uri) == []


async def test_a_setting_that_the_client_no_longer_has_is_what_it_was_at_the_start(tmp_path: Path):
    configuration = {"codeLens": {"enabled": False}, "limits": {"seconds": 7}}
    async with traced(tmp_path, TEXT, options={"limits.seconds": 5}, configuration=configuration) as (e, uri):
        assert await e.lenses(uri) == []
        e.client.set_configuration({"fx-lsp": {}})
        e.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings=None))
        while not await e.lenses(uri):
            await asyncio.sleep(0.01)


async def test_wrong_settings_are_named_once(tmp_path: Path):
    options = {"limits": {"seconds": -1, "memory": "4 GiB"}, "inlayHints": True, "interpreter": ["python"], "other": 1}
    async with traced(tmp_path, TEXT, {}, options=options) as (e, uri):
        assert await e.hover(uri, 0, 4) is not None
        (message,) = [m.message for m in e.client.messages]
        assert message.removesuffix(" The previous settings stay in effect.").split("; ") == snapshot(
            [
                "fx-lsp: fx-lsp.inlayHints is True, not an object",
                "fx-lsp.interpreter is ['python'], not a path",
                "fx-lsp.limits.seconds is -1, not a number of seconds above 0 and up to a billion",
                "fx-lsp.limits.memory is '4 GiB', not a number of MiB above 0 and up to a billion.",
            ]
        )


async def test_clients_that_push_their_settings(tmp_path: Path):
    async with traced(tmp_path, TEXT, {}) as (e, uri):
        assert await e.lenses(uri)
        settings = {"fx-lsp": {"codeLens": {"enabled": False}}}
        e.client.workspace_did_change_configuration(types.DidChangeConfigurationParams(settings=settings))
        while await e.lenses(uri):
            await asyncio.sleep(0.01)


async def test_other_documents_are_left_alone(tmp_path: Path):
    async with editor(tmp_path) as e:
        uris = [
            e.open("m.txt", TEXT, language="plaintext"),
            e.open("", TEXT, uri="git:/project/m.py"),
        ]
        for uri in uris:
            assert await e.lenses(uri) == []
            e.change(uri, 2, "")
        untitled = e.open("", TEXT, uri="untitled:Untitled-1")
        assert await e.titles(untitled)


async def test_restart(tmp_path: Path):
    async with traced(tmp_path, TEXT) as (e, uri):
        await e.command("fxLsp.restart")
        assert await e.titles(uri)


@pytest.mark.parametrize("capabilities", [{}, FULL], ids=["a file", "a document"])
async def test_a_line_of_a_graph_leads_to_its_source(tmp_path: Path, capabilities: dict[str, object]):
    async with traced(tmp_path, TEXT, capabilities) as (e, uri):
        shown = await e.command("fxLsp.showStage", uri, "f", "inference")
        text = Path(shown["path"]).read_text() if "path" in shown else await e.document(shown["uri"])
        (line,) = (n for n, row in enumerate(text.splitlines()) if "= aten.add" in row)
        assert await e.hover(shown["uri"], line, 8) == snapshot("""\
```python
y: f32[2, 3] = aten.add.Tensor(x, 1)
```

m.py:1

```python
def f(x): return x + 1
```

- read by the results\
""")
        assert await e.hover(shown["uri"], 0, 0) is None
        place = types.DefinitionParams(types.TextDocumentIdentifier(shown["uri"]), Position(line, 8))
        (found,) = await e.client.text_document_definition_async(place)
        assert (found.uri, found.range) == (uri, types.Range(Position(0, 17), Position(0, 22)))
