"""Passes of the user in a session with the real server and the real tracer: run, edit, look away."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import pytest_asyncio
from lsprotocol import types
from processes import Processes
from pygls.exceptions import JsonRpcException
from sessions import FULL, editor
from users import PATIENCE, SERVE, User, options

pytestmark = [pytest.mark.torch, pytest.mark.asyncio(loop_scope="module")]

MODEL = """\
import torch

# fx: x=f32[4]
def f(x):
    y = torch.relu(x) + 1.0
    return y * 0.5

# fx: x=f32[4]
def g(x):
    return torch.exp(x)
"""
OWN = """\
import torch
from torch import fx

aten = torch.ops.aten


def own(gm: fx.GraphModule):
    for node in gm.graph.nodes:
        if node.target == aten.relu.default:
            node.target = aten.gelu.default


def add_pattern(x):
    return aten.add.Tensor(aten.relu.default(x), 1.0)


def add_replacement(x):
    return aten.relu.default(aten.add.Tensor(x, 1.0))
"""
BUILT = """\
import torch
from torch import fx


def built():
    graph = fx.Graph()
    graph.output(graph.call_function(torch.ops.aten.relu.default, (graph.placeholder("x"),)))
    return graph
"""
BROKEN = OWN.replace("node.target = aten.gelu.default", "gm.graph.erase_node(node)")


class Author(User):
    """A user who is asked questions: `answers` are what is chosen, None to dismiss."""

    def __init__(self, client: Any, folder: Path) -> None:
        super().__init__(client, folder)
        self.questions: list[types.ShowMessageRequestParams] = []
        self.answer: str | None = None

        @client.feature(types.WINDOW_SHOW_MESSAGE_REQUEST)
        def asked(params: types.ShowMessageRequestParams) -> types.MessageActionItem | None:
            self.questions.append(params)
            return None if self.answer is None else types.MessageActionItem(title=self.answer)

    def said(self, uri: str) -> list[str]:
        """`severity line: message` of the problems that stand in a file now."""
        return [
            f"{d.severity.name if d.severity else ''} {d.range.start.line + 1}: {d.message}"
            for d in self.client.diagnostics.get(uri, [])
        ]

    def look_at(self, uri: str) -> None:
        """Open the document of a view."""
        document = types.TextDocumentItem(uri=uri, language_id="python", version=1, text="")
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(text_document=document))

    async def shown(self, uri: str, part: str) -> str:
        """The text of a view, once it has `part` in it."""
        while part not in (text := await self.document(uri)):
            await asyncio.sleep(0.05)
        return text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def author(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Author]:
    processes, folder = Processes(), tmp_path_factory.mktemp("passes")
    async with editor(folder, FULL, options(seconds=8), command=SERVE, env=processes.env, make=Author) as found:
        found.processes = processes
        yield found
    assert await processes.gone(), processes.all()


@pytest_asyncio.fixture(loop_scope="module")
async def files(author: Author, request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, str]]:
    """A model and the passes, open, in files of their own for every test; the model is traced."""
    name = request.node.name.translate({ord("["): "_", ord("]"): None})
    model, own = author.start(MODEL, f"{name}_model.py"), author.start(OWN, f"{name}_own.py")
    for target in "fg":
        await asyncio.wait_for(author.lens(own, f"run on {target}"), PATIENCE)
    yield model, own
    author.close(own)
    author.close(model)


def path_of(author: Author, uri: str) -> str:
    return str(author.folder / unquote(uri.rpartition("/")[2]))


async def run(author: Author, files: tuple[str, str], name: str = "own", target: str = "f") -> str:
    """Run a pass, as its lens does; returns the URI of what it shows, which is then open."""
    model, own = files
    shown = await author.command("fxLsp.runPass", own, name, path_of(author, model), target)
    author.look_at(shown["uri"])
    return shown["uri"]


async def test_a_pass_offers_what_was_traced_last(author: Author, files: tuple[str, str]) -> None:
    _, own = files
    await asyncio.wait_for(author.lens(own, "run on f"), PATIENCE)
    lenses = [lens for lens in await author.lenses(own) if lens.range.start.line == 6]
    assert [lens.command.title for lens in lenses if lens.command] == ["run on f", "run on g", "run on …"]
    command = lenses[0].command
    assert command is not None and command.arguments is not None
    shown = await author.command(command.command, *command.arguments)
    assert "+    relu: f32[4] = aten.gelu.default(x)" in await author.document(shown["uri"])


async def test_editing_a_pass_runs_it_again(author: Author, files: tuple[str, str]) -> None:
    _, own = files
    view = await run(author, files)
    assert "aten.gelu.default" in await author.document(view)
    author.refreshed.clear()
    author.change(own, 2, OWN.replace("gelu", "tanh"))
    await author.until(lambda: view in author.refreshed, PATIENCE)
    text = await asyncio.wait_for(author.shown(view, "aten.tanh.default"), PATIENCE)
    assert "aten.gelu.default" not in text
    author.close(view)


async def test_what_a_pass_raises_stands_in_its_file_until_it_is_mended_or_looked_away_from(
    author: Author, files: tuple[str, str]
) -> None:
    _, own = files
    author.change(own, 2, BROKEN)
    view = await run(author, files)
    text = await author.document(view)
    assert "# inference" in text and "still had 1 users" in text
    await author.until(lambda: author.said(own), PATIENCE)
    (problem,) = author.said(own)
    assert problem.startswith("Error 10: own raised RuntimeError: Tried to erase Node relu")
    author.change(own, 3, OWN)
    await asyncio.wait_for(author.shown(view, "aten.gelu.default"), PATIENCE)
    await author.until(lambda: author.said(own) == [], PATIENCE)
    author.change(own, 4, BROKEN)
    await asyncio.wait_for(author.shown(view, "still had 1 users"), PATIENCE)
    await author.until(lambda: author.said(own), PATIENCE)
    author.close(view)
    await author.until(lambda: author.said(own) == [], PATIENCE)


async def test_matches_are_hints_in_the_source_of_the_target(author: Author, files: tuple[str, str]) -> None:
    model, _ = files
    view = await run(author, files, "add_pattern")
    assert "# match 1" in await author.document(view)
    await author.until(lambda: author.said(model), PATIENCE)
    assert author.said(model) == ["Hint 5: match 1 of add_pattern: relu, y."]
    graph = view.replace("f.run.py", "f.inference.py")
    author.look_at(graph)
    lines = (await author.document(graph)).splitlines()
    assert [line.split(":")[0].strip() for line in lines if line.endswith("# match 1")] == ["relu", "y"]
    author.close(graph)
    author.close(view)
    await author.until(lambda: author.said(model) == [], PATIENCE)


async def test_a_pass_runs_on_a_graph_that_is_built_by_hand(author: Author, files: tuple[str, str]) -> None:
    _, own = files
    built = author.start(BUILT, "built.py")
    await asyncio.wait_for(author.lens(own, "run on built"), PATIENCE)
    view = await run(author, (built, own), target="built")
    assert "+    relu_default = aten.gelu.default(x)" in await author.document(view)
    author.close(view)
    author.close(built)


async def test_the_editor_asks_which_target_is_meant(author: Author, files: tuple[str, str]) -> None:
    model, own = files
    author.questions.clear()
    author.answer = None
    assert await author.command("fxLsp.runPass", own, "own") is None
    (question,) = author.questions
    titles = [action.title for action in question.actions or ()]
    file = model.rpartition("/")[2]
    assert question.message == "Run own on …" and titles[:2] == [f"f · {file}", f"g · {file}"]
    author.answer = f"g · {file}"
    shown = await author.command("fxLsp.runPass", own, "own")
    assert "g" in shown["uri"] and "nothing  pass own" in await author.document(shown["uri"])


async def test_a_pass_that_is_not_there_is_an_error_of_the_request(author: Author, files: tuple[str, str]) -> None:
    _, own = files
    with pytest.raises(JsonRpcException, match="has no pass 'nothing'"):
        await author.command("fxLsp.runPass", own, "nothing")


async def test_a_pass_that_is_gone_says_so_where_it_was_shown(author: Author, files: tuple[str, str]) -> None:
    _, own = files
    view = await run(author, files)
    await author.document(view)
    author.change(own, 2, textwrap.dedent(OWN.replace("def own(", "def other(")))
    text = await asyncio.wait_for(author.shown(view, "has no pass 'own'"), PATIENCE)
    assert "it has other, add_pattern" in text
    author.close(view)


RUDE = {
    "forever": ("while True: pass", "more than 8 s"),
    "exits": ("import os; os._exit(3)", "exited with code 3"),
    "prints": ("print('x' * 5_000_000); node.target = aten.tanh.default", "aten.tanh.default"),
}


@pytest.mark.parametrize("how", RUDE)
async def test_a_rude_pass_ends_nothing_but_itself(author: Author, files: tuple[str, str], how: str) -> None:
    _, own = files
    body, said = RUDE[how]
    author.change(own, 2, OWN.replace("node.target = aten.gelu.default", body))
    view = await run(author, files)
    assert said in await author.document(view)
    author.close(view)
    await author.traces()
