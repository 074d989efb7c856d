"""The cursor in a function highlights what came from it in every open graph, whichever function and file it is in."""

from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from sessions import REAL, Editor, ask, editor
from warm import warm_python

pytestmark = pytest.mark.torch

ATTENTION = """\
def attention(q, k, v):
    scores = (q @ k.T).softmax(-1)
    return scores @ v
"""
BLOCK = """\
from torch import nn

from attention import attention


# fx: x=f32[4, 8]
class Block(nn.Module):
    def forward(self, x):
        y = attention(x, x, x)
        return y.relu() + self.shift(x)

    def shift(self, x):
        return x.sin()


# fx: x=f32[4, 8]
def scaled(x):
    return shifted(x) * 2


def shifted(x):
    return x + 1
"""


class Shown:
    """The texts that an editor has open, and the requests of a cursor in them."""

    def __init__(self, ed: Editor) -> None:
        self.ed = ed
        self.texts: dict[str, str] = {}

    def source(self, name: str, text: str) -> str:
        (self.ed.folder / name).write_text(text)
        uri = self.ed.open(name, text)
        self.texts[uri] = text
        return uri

    async def graph(self, source: str, target: str) -> str:
        uri = (await self.ed.command("fxLsp.showStage", source, target))["uri"]
        self.texts[uri] = await self.ed.document(uri)
        self.ed.open("", self.texts[uri], uri=uri)
        return uri

    async def lit(self, uri: str, place: str) -> list[str]:
        """The lines of graphs and sources that belong to the cursor before `place`, with their file."""
        before = self.texts[uri].partition(place)[0]
        position = {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}
        answer: Any = await ask(self.ed, "fxLsp/related", uri=uri, position=position)
        rows: list[str] = []
        for item in answer:
            document = str(item["uri"])
            lines, name = self.texts[document].splitlines(), document.rpartition("/")[2]
            starts = [int(range_["start"]["line"]) for range_ in item["ranges"]]
            rows += [f"{name}: {lines[start].strip().partition('  # ')[0]}" for start in starts]
        return rows


async def test_a_place_lights_every_graph_that_runs_it(tmp_path: Path):
    options = {"cache.path": str(tmp_path / "cache.db"), "interpreter": warm_python()}
    async with editor(tmp_path, options=options, command=REAL) as ed:
        shown = Shown(ed)
        helper, block = shown.source("attention.py", ATTENTION), shown.source("block.py", BLOCK)
        graph = await shown.graph(block, "Block")
        await shown.graph(block, "scaled")

        # in a function of another file, which has no graph open
        assert await shown.lit(helper, "scores @ v") == snapshot(
            [
                "Block.forward.py: # attention.py:3  return scores @ v",
                "Block.forward.py: y: f32[4, 8] = aten.mm.default(softmax, x)",
                "attention.py: return scores @ v",
            ]
        )
        # on its call: all that it computes
        assert await shown.lit(block, "attention(x, x, x)") == snapshot(
            [
                "Block.forward.py: # attention.py:2  scores = (q @ k.T).softmax(-1)",
                "Block.forward.py: permute: f32[8, 4](1, 8) = aten.permute.default(x, [1, 0])",
                "Block.forward.py: mm: f32[4, 4] = aten.mm.default(x, permute)",
                "Block.forward.py: softmax: f32[4, 4] = aten._softmax.default(mm, -1, False)",
                "Block.forward.py: # attention.py:3  return scores @ v",
                "Block.forward.py: y: f32[4, 8] = aten.mm.default(softmax, x)",
                "block.py: y = attention(x, x, x)",
            ]
        )
        # in a method beside `forward`, and in a function that another target calls
        assert await shown.lit(block, "x.sin()") == snapshot(
            [
                "Block.forward.py: # block.py:13  return x.sin()",
                "Block.forward.py: sin: f32[4, 8] = aten.sin.default(x)",
                "block.py: return x.sin()",
            ]
        )
        assert await shown.lit(block, "x + 1") == snapshot(
            [
                "scaled.forward.py: # block.py:22  return x + 1",
                "scaled.forward.py: add: f32[4, 8] = aten.add.Tensor(x, 1)",
                "block.py: return x + 1",
            ]
        )
        # and back
        assert await shown.lit(graph, "aten.sin") == snapshot(
            [
                "Block.forward.py: # block.py:13  return x.sin()",
                "Block.forward.py: sin: f32[4, 8] = aten.sin.default(x)",
                "block.py: return x.sin()",
            ]
        )
        # nothing was computed on a line
        assert await shown.lit(block, "from torch") == []
