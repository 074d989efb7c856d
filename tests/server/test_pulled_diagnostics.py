"""Clients that pull diagnostics: they are told when to pull, and nothing is published to them."""

import asyncio
from pathlib import Path
from typing import Any

from lsprotocol import types
from sessions import FULL, Editor, editor

TEXT = "def broken(x): return fail\n"
PULLING: dict[str, Any] = {
    **FULL,
    "workspace": {**FULL["workspace"], "diagnostics": {"refreshSupport": True}},
    "textDocument": {**FULL["textDocument"], "diagnostic": {}},
}


class Pulling(Editor):
    def __init__(self, client, folder: Path) -> None:
        super().__init__(client, folder)
        refresh = types.WORKSPACE_DIAGNOSTIC_REFRESH
        client.protocol.fm.features[refresh] = self._refreshed(refresh)

    async def pull(self, uri: str, previous: str | None = None) -> Any:
        document = types.TextDocumentIdentifier(uri=uri)
        params = types.DocumentDiagnosticParams(text_document=document, previous_result_id=previous)
        return await self.client.text_document_diagnostic_async(params)

    async def pull_all(self, previous: dict[str, str] | None = None) -> list[Any]:
        results = [types.PreviousResultId(uri, result) for uri, result in (previous or {}).items()]
        params = types.WorkspaceDiagnosticParams(previous_result_ids=results)
        return list((await self.client.workspace_diagnostic_async(params)).items)

    async def told(self) -> None:
        """Waits until the client is told to pull."""
        await self.until(lambda: types.WORKSPACE_DIAGNOSTIC_REFRESH in self.refreshed)
        self.refreshed.clear()


def pulling(folder: Path, capabilities: dict[str, Any] = PULLING):
    return editor(folder, capabilities, make=Pulling)


async def test_a_client_is_told_to_pull_and_nothing_is_published(tmp_path: Path):
    async with pulling(tmp_path) as e:
        uri = e.open("m.py", TEXT)
        await e.told()
        first = await e.pull(uri)
        assert [(d.code, d.source) for d in first.items] == [("shape", "fx-lsp")]
        assert uri not in e.client.diagnostics
        again = await e.pull(uri, first.result_id)
        assert (again.kind, again.result_id) == ("unchanged", first.result_id)
        e.change(uri, 2, "def broken(x): return x + 1\n")
        await e.told()
        assert (await e.pull(uri, first.result_id)).items == ()


async def test_a_client_that_cannot_be_told_gets_them_published_and_pulls_none(tmp_path: Path):
    deaf = {**PULLING, "workspace": FULL["workspace"]}
    async with pulling(tmp_path, deaf) as e:
        uri = e.open("m.py", TEXT)
        assert await e.problems(uri)
        assert (await e.pull(uri)).items == ()


async def test_a_client_that_pulls_the_workspace_gets_the_problems_of_all_its_files(tmp_path: Path):
    (tmp_path / "closed.py").write_text(TEXT)
    (tmp_path / "right.py").write_text("def right(x): return x + 1\n")
    async with pulling(tmp_path) as e:
        uri = e.open("m.py", TEXT)
        await e.told()
        first = await e.pull_all()
        other = (tmp_path / "closed.py").as_uri()
        assert {item.uri: [d.code for d in item.items] for item in first if item.items} == {
            uri: ["shape"],
            other: ["shape"],
        }
        known = {item.uri: item.result_id for item in first}
        (tmp_path / "closed.py").unlink()
        waiting = asyncio.ensure_future(e.pull_all(known))
        for _ in range(3):
            await e.client.workspace_symbol_async(types.WorkspaceSymbolParams("broken"))
        assert not waiting.done()
        e.change(uri, 2, "def broken(x): return fail + 1\n")
        again = {item.uri: item for item in await waiting}
        assert (again[(tmp_path / "right.py").as_uri()].kind, again[other].items) == ("unchanged", ())


async def test_a_document_that_is_not_open_has_none(tmp_path: Path):
    async with pulling(tmp_path) as e:
        assert (await e.pull((tmp_path / "other.py").as_uri())).items == ()
