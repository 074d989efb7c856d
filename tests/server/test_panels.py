"""What clients that draw ask for, with an engine that knows its answers."""

from pathlib import Path

import pytest
from inline_snapshot import snapshot
from pygls.exceptions import JsonRpcException
from sessions import ask, editor, plain, traced

TEXT = "def f(x): return x + 1\n\ndef broken(x): return fail\n"


async def test_what_is_drawn_of_a_document(tmp_path: Path):
    async with traced(tmp_path, TEXT) as (e, uri):
        found = await ask(e, "fxLsp/functions", uri=uri)
        assert [(f["name"], f["state"], f["message"], f["stages"], f["saved"]) for f in found["functions"]] == snapshot(
            [
                ("f", "traced", "1 op · nothing to differentiate", [{"name": "inference", "ops": 1}], None),
                ("broken", "failed", "sizes do not fit. write the shapes down.", [], None),
            ]
        )
        assert found["functions"][0]["selectionRange"]["start"] == {"line": 0, "character": 4}
        assert await ask(e, "fxLsp/functions", uri="file:///not/open.py") is None

        # what each line costs
        assert await ask(e, "fxLsp/lineCosts", uri=uri) == [
            {
                "name": "f",
                "measure": "bytes",
                "where": "",
                "guessed": True,
                "lines": [
                    {
                        "uri": uri,
                        "line": 0,
                        "endLine": 0,
                        "share": 1.0,
                        "savedShare": 0.0,
                        "flops": 0,
                        "moved": 48,
                        "saved": 0,
                        "live": 24,
                        "times": None,
                    }
                ],
            }
        ]
        assert await ask(e, "fxLsp/lineCosts", uri="file:///not/open.py") is None

        # the lines that each source line became
        view = uri.replace("file://", "fx-lsp:") + "/f.inference.py"
        assert await ask(e, "fxLsp/origins", uri=view) is None
        lines = (await e.document(view)).splitlines()
        (found,) = await ask(e, "fxLsp/origins", uri=view)
        assert (found["uri"], found["line"]) == (uri, 0)
        assert [lines[n].strip() for n in found["lines"]] == [
            "# m.py:1  def f(x): return x + 1",
            "y: f32[2, 3] = aten.add.Tensor(x, 1)",
        ]

        # a graph to draw
        found = await ask(e, "fxLsp/graph", uri=view)
        assert [(n["name"], n["kind"], n["label"], n["group"]) for n in found["nodes"]] == snapshot(
            [("x", "placeholder", "x", -1), ("y", "op", "add", 0), ("output", "output", "output", -1)]
        )
        assert found["groups"][0]["title"] == "m.py:1  def f(x): return x + 1"
        assert found["nodes"][1]["place"]["uri"] == uri
        broken = await ask(e, "fxLsp/graph", uri=view.replace("f.inf", "broken.inf"))
        assert broken == snapshot({"failure": "sizes do not fit. write the shapes down."})
        with pytest.raises(JsonRpcException):
            await ask(e, "fxLsp/graph", uri=uri)

        # memory
        found = await ask(e, "fxLsp/memory", uri=view)
        assert [(s["name"], s["live"], s["made"]) for s in found["steps"]] == [("y", 24, 24)]
        assert (found["saved"], found["peak"]) == ([], 0)


async def test_graphs_are_compared_in_rows(tmp_path: Path):
    async with editor(tmp_path) as e:
        uri = e.open("m.py", TEXT + "\ndef g(x): return x + 1\n")
        view = uri.replace("file://", "fx-lsp:") + "/f.inference.py"
        other = view.replace("/f.inf", "/g.inf")
        found = await ask(e, "fxLsp/compare", uris=[view, other])
        assert [graph["title"] for graph in found["graphs"]] == ["m.py::f · inference", "m.py::g · inference"]
        assert [[cell["text"] for cell in row] for row in found["rows"]] == snapshot(
            [
                ["x: f32[2, 3]", "x: f32[2, 3]"],
                ["y: f32[2, 3] = aten.add.Tensor(x, 1)", "y: f32[2, 3] = aten.add.Tensor(x, 1)"],
                ["return y", "return y"],
            ]
        )
        assert not any(cell["unlike"] for row in found["rows"] for cell in row)
        assert found["rows"][1][1]["place"]["range"]["start"]["line"] == 4
        broken = await ask(e, "fxLsp/compare", uris=[view, view.replace("/f.inf", "/broken.inf")])
        assert broken == snapshot({"failure": "broken · inference: sizes do not fit. write the shapes down."})
        with pytest.raises(JsonRpcException):
            await ask(e, "fxLsp/compare", uris=[view])


async def test_changes_are_told_to_clients_that_want_to_know(tmp_path: Path):
    async with editor(tmp_path, options={"changes": True}) as e:
        told: list[object] = []
        e.client.feature("fxLsp/changed")(lambda params: told.append(plain(params)))
        uri = e.open("m.py", TEXT)
        await e.until(lambda: told)
        assert told[0] == {"uris": [uri]}


async def test_hover_links_to_what_the_client_does(tmp_path: Path):
    async with traced(tmp_path, TEXT, options={"commandLinks": True}) as (e, uri):
        hover = await e.hover(uri, 0, 4)
        assert hover is not None and "[pin inputs](command:fxLsp.pinInputs?%5B%22" in hover
