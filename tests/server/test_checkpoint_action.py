"""Selecting statements and making them a checkpoint, with the real engine."""

import ast
import asyncio
import copy
from pathlib import Path

import pytest
from lsprotocol import types
from sessions import FULL, REAL, Editor, traced
from warm import warm_python

TEXT = """\
import torch


# fx: x=f32[8, 16], w=f32[16, 32], v=f32[32, 4]
def f(x, w, v):
    h = x @ w
    a = h.sigmoid().exp()
    p = torch.softmax(a * a, -1)
    return (p @ v).sum()
"""
ABLE = copy.deepcopy(FULL)
ABLE["textDocument"]["codeAction"] = {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": []}}}

pytestmark = pytest.mark.torch


async def actions(e: Editor, uri: str, first: int, end: int) -> list[types.Command | types.CodeAction]:
    """What is offered for whole lines from `first` up to `end`, which count from 0."""
    at = types.Range(types.Position(first, 0), types.Position(end, 0))
    found = await e.client.text_document_code_action_async(
        types.CodeActionParams(types.TextDocumentIdentifier(uri), at, types.CodeActionContext([], only=["refactor"]))
    )
    return [a for a in found or () if a.title.startswith("Checkpoint")]


async def offered(e: Editor, uri: str, first: int, end: int) -> list[types.Command | types.CodeAction]:
    """The same, once the present text is traced."""

    async def wait() -> list[types.Command | types.CodeAction]:
        while not (found := await actions(e, uri, first, end)):
            await asyncio.sleep(0.05)
        return found

    return await asyncio.wait_for(wait(), 600)


async def page(e: Editor, action: types.Command | types.CodeAction) -> str:
    """What the command of an action shows. The client's library takes an action with a command for a command."""
    command = ast.literal_eval(str(action.command))
    shown = await e.command(command["command"], *command["arguments"])
    return await e.document(shown["uri"] if isinstance(shown, dict) else shown.uri)


async def test_a_selection_is_offered_as_a_checkpoint(tmp_path: Path):
    async with traced(tmp_path, TEXT, ABLE, {"interpreter": warm_python()}, command=REAL) as (e, uri):
        look, rewrite = await offered(e, uri, 6, 8)
        text = await page(e, look)
        assert "#     p = torch.softmax(a * a, -1)\n#\n# partitioner" in text

        assert isinstance(rewrite, types.CodeAction) and rewrite.edit is not None and rewrite.edit.changes is not None
        imported, body = rewrite.edit.changes[uri]
        assert imported.new_text == "from torch.utils.checkpoint import checkpoint\n"
        assert (body.range.start.line, body.range.end.line) == (6, 7)
        assert "    p = checkpoint(region, h, use_reentrant=False)" in body.new_text

        assert await actions(e, uri, 0, 1) == []
        e.change(uri, 2, TEXT.replace("\n\n\n", "\n\n\n\n"))  # all moves down by a line: the same lines, others of f
        moved, *_ = await offered(e, uri, 6, 8)
        text = await page(e, moved)
        assert "#     h = x @ w\n#     a = h.sigmoid().exp()\n#\n# partitioner" in text
