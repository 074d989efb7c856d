"""The lenses that a target has by default: its cost, and a menu of the others."""

from pathlib import Path

from inline_snapshot import snapshot
from sessions import Choosing, editor, traced

TEXT = "def f(x): return x + 1\n\ndef broken(x): return fail\n"


def fresh(folder: Path):
    return traced(folder, TEXT, options=None, make=Choosing)


async def test_a_target_has_its_cost_and_a_menu(tmp_path: Path):
    async with fresh(tmp_path) as (e, uri):
        lenses = await e.lenses(uri)
        assert [(x.command.title, x.command.command, x.command.tooltip) for x in lenses] == snapshot(
            [
                (
                    "1 op · nothing to differentiate",
                    "fxLsp.showStage",
                    "for x: ~f32[2, 3] (`~`: a guessed size; nothing in the code fixes it)",
                ),
                ("graphs", "fxLsp.menu", "The graphs and commands of f"),
                ("not traced", "fxLsp.showFailure", None),
            ]
        )

        # a menu that is closed does nothing
        assert await e.command("fxLsp.menu", uri, "f") is None
        assert e.offered and not e.shown

        # a client with a menu of its own gets the commands
        offered = await e.command("fxLsp.commands", uri, "f")
        assert [(x["title"], x["command"], x["arguments"][2:]) for x in offered] == snapshot(
            [
                ("show inference graph", "fxLsp.showStage", ["inference"]),
                ("passes", "fxLsp.showStage", ["passes", "passes"]),
                ("why not fused", "fxLsp.showStage", ["fusion", "fusion"]),
                ("generate Triton kernel", "fxLsp.showStage", ["triton", "triton"]),
                ("benchmark", "fxLsp.bench", []),
                ("benchmark by line", "fxLsp.bench", [{"byLine": True}]),
            ]
        )

        # the menu runs what is picked
        e.choice = "show inference graph"
        answer = await e.command("fxLsp.menu", uri, "f")
        assert e.offered == snapshot(
            (
                "show inference graph",
                "passes",
                "why not fused",
                "generate Triton kernel",
                "benchmark",
                "benchmark by line",
            )
        )
        assert answer["uri"].endswith("/m.py/f.inference.py")
        assert e.shown == [answer["uri"]]


async def test_a_target_without_graphs_has_no_menu(tmp_path: Path):
    async with fresh(tmp_path) as (e, uri):
        for name in ("broken", "nothing"):
            assert await e.command("fxLsp.menu", uri, name) is None
            assert await e.command("fxLsp.commands", uri, name) == []
        assert not e.offered


async def test_a_target_that_is_traced_says_so_from_the_first_moment(tmp_path: Path):
    async with editor(tmp_path, options=None) as e:
        uri = e.open("m.py", "def f(x): return slow\n")
        assert await e.titles(uri) == ["tracing…"]
