"""The text that the server has is the text that the editor has."""

import os
import random
from pathlib import Path

import pytest
from lsprotocol import types
from sessions import editor, served

from fx_lsp.model import Span
from fx_lsp.server import from_proto, to_proto

ENCODINGS = ["utf-8", "utf-16", "utf-32"]
ALPHABET = ["a", "é", "模", "🙂", "\n", "\r\n", "\r", "\x0c", "\u2028", " "]


def units(text: str, encoding: str) -> int:
    return len(text.encode(f"{encoding}-le" if encoding != "utf-8" else encoding)) // (int(encoding[4:]) // 8)


def place(text: str, index: int, encoding: str) -> types.Position:
    """The position of a character of `text`, worked out from the protocol's definition of a line."""
    before = text[:index].replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return types.Position(len(before) - 1, units(before[-1], encoding))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_random_edits(encoding: str):
    random_ = random.Random(encoding)
    for _ in range(300):
        text = "".join(random_.choices(ALPHABET, k=random_.randrange(12)))
        lines = from_proto.split_lines(text)
        for _ in range(6):
            start, end = sorted(random_.randrange(len(text) + 1) for _ in range(2))
            if any(text[i - 1 : i + 1] == "\r\n" for i in (start, end)):
                continue
            new = "".join(random_.choices(ALPHABET, k=random_.randrange(4)))
            range_ = types.Range(place(text, start, encoding), place(text, end, encoding))
            change = types.TextDocumentContentChangePartial(range=range_, text=new)
            text = text[:start] + new + text[end:]
            lines = from_proto.apply_change(lines, change, encoding)
            assert "".join(lines) == text
            assert lines == from_proto.split_lines(text)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_positions_round_trip(encoding: str):
    text = "x = '🙂é模'; y = 1\nz\n"
    lines = from_proto.split_lines(text)
    for index in range(len(text)):
        at = place(text, index, encoding)
        line, col = from_proto.position(lines, at, encoding)
        assert to_proto.position(lines, line, col, encoding) == at


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_positions_beyond_the_end(encoding: str):
    lines = from_proto.split_lines("é\r\nlast")
    assert from_proto.position(lines, types.Position(0, 99), encoding) == (1, 2)
    assert from_proto.position(lines, types.Position(99, 99), encoding) == (2, 4)
    assert to_proto.position(lines, 99, 99, encoding) == types.Position(1, 4)
    assert to_proto.position(lines, 1, 99, encoding) == types.Position(0, units("é", encoding))
    everything = types.Range(types.Position(0, 0), types.Position(99, 0))
    change = types.TextDocumentContentChangePartial(range=everything, text="new")
    assert from_proto.apply_change(lines, change, encoding) == ["new"]


def test_a_position_between_two_surrogates():
    lines = from_proto.split_lines("a🙂b")
    assert from_proto.position(lines, types.Position(0, 2), "utf-16") == (1, 1)
    span = Span("", 1, 3, 1, 5)
    assert to_proto.range_(lines, span, "utf-16") == types.Range(types.Position(0, 1), types.Position(0, 3))


def test_lone_surrogates_can_be_encoded():
    assert from_proto.clean_text("a\ud83db").encode() == "a\ufffdb".encode()


def test_unsaved_documents_have_a_place_in_the_workspace():
    assert from_proto.file_of_uri("untitled:Untitled-1", ["/project"]) == "/project/untitled_Untitled_1.py"
    assert from_proto.file_of_uri("file:///a%20b.py", []) == "/a b.py"
    assert from_proto.file_of_uri("git:/a.py", []) is None


async def test_clients_that_can_are_asked_to_watch_python_files():
    async with served({"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": True}}}) as server:
        while (message := await server.read()).get("method") != "client/registerCapability":
            pass
        (registration,) = message["params"]["registrations"]
        assert registration["method"] == "workspace/didChangeWatchedFiles"
        assert {"globPattern": "**/*.py"} in registration["registerOptions"]["watchers"]
        server.body(b'{"jsonrpc":"2.0","id":"%s","result":null}' % message["id"].encode())
        server.send("shutdown", msg_id=1)
        assert (await server.answer(1))["result"] is None


async def test_files_that_answers_read_are_watched_too(tmp_path: Path):
    capabilities = {"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": True}}}
    texts = {
        "m.py": 'def f(x): return open("config.json")\ndef g(x): return open("data/")\n',
        "n.py": 'def h(x): return open("other.json"), open("LICENSE")\n',
    }
    watched: list[str] = []
    async with served(capabilities, root=tmp_path) as server:
        for name, text in texts.items():
            uri = (tmp_path / name).as_uri()
            item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
            server.send("textDocument/didOpen", {"textDocument": item})
        while not {"**/*.py", "**/*.json", "**/data/*", "**/LICENSE"} <= {*watched}:
            message = await server.read()
            if message.get("method") == "client/registerCapability":
                for registration in message["params"]["registrations"]:
                    watched += [w["globPattern"] for w in registration["registerOptions"]["watchers"]]
    assert len(watched) == len({*watched}), "each is registered once"


async def test_other_clients_are_not_asked():
    async with served({"workspace": {"didChangeWatchedFiles": {"dynamicRegistration": False}}}) as server:
        server.send("textDocument/codeLens", {"textDocument": {"uri": "file:///m.py"}}, msg_id=1)
        assert (await server.read()).get("id") == 1


async def test_a_graph_that_finds_no_room_on_disk(tmp_path: Path):
    resource = pytest.importorskip("resource")
    async with editor(tmp_path, {}) as e:
        uri = e.open("m.py", "def f(x): return x\n")
        shown = await e.command("fxLsp.showStage", uri, "f")
        assert "return x" in Path(shown["path"]).read_text()
        resource.prlimit(e.client._server.pid, resource.RLIMIT_FSIZE, (0, 0))
        for version in (2, 3):
            e.change(uri, version, f"def f(x): return x + {version}\n")
            await e.until(lambda version=version: e.statuses and f"opened {version} times" in e.statuses[-1].message)
        await e.until(lambda: len(e.client.messages) > 1)
        assert await e.command("fxLsp.showStage", uri, "f") is None
        assert [m.message.partition(": [")[0] for m in e.client.messages][1:] == [
            "fx-lsp: f.inference.py cannot be updated",
            "fx-lsp: f.inference.py cannot be written",
        ]
        assert os.listdir(Path(shown["path"]).parent) == [Path(shown["path"]).name]


async def test_positions_behind_surrogate_pairs(tmp_path: Path):
    async with editor(tmp_path) as e:
        uri = e.open("m.py", "def f(x): return '🙂🙂' + x\n")
        (hint,) = await e.hints(uri)
        assert hint.position == types.Position(0, 27)
        assert await e.hover(uri, 0, 26) is not None
        assert await e.hover(uri, 0, 10_000) is not None
        assert await e.hover(uri, 10_000, 0) is None


async def test_a_hundred_changes_at_once(tmp_path: Path):
    async with editor(tmp_path) as e:
        uri = e.open("m.py", "def f(x): return x\n")
        assert await e.titles(uri)
        for version in range(2, 102):
            end = types.Position(0, 18 + version - 2)
            e.change(uri, version, "x", types.Range(end, end))
        await e.until(lambda: any(status.message.startswith("opened 101 times") for status in e.statuses))
        view = await e.document(f"fx-lsp:{tmp_path}/m.py/f.inference.py")
        assert f"return {'x' * 101}" in view
