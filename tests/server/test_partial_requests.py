"""What a client gets of a target that fails partway, of code that is not reached, and of a variant."""

from copy import deepcopy
from pathlib import Path

from inline_snapshot import snapshot
from lsprotocol import types
from lsprotocol.types import DiagnosticSeverity, DiagnosticTag
from sessions import FULL, ask, traced

TEXT = "def ran(x): return partly(fail)\n\ndef option(x): return x - y if y else x\n"
FADING = deepcopy(FULL)
FADING["textDocument"]["publishDiagnostics"]["tagSupport"] = {"valueSet": [1]}


async def test_what_ran_before_a_failure_and_a_variant_are_offered(tmp_path: Path):
    async with traced(tmp_path, TEXT) as (e, uri):
        commands = [(lens.command.title, list(lens.command.arguments)[1:]) for lens in await e.lenses(uri)]
        assert [c for c in commands if c[0] in ("show partial graph", "with y")] == snapshot(
            [("show partial graph", ["ran", "torch"]), ("with y", ["option", "", "variant=y"])]
        )

        # the tree has both
        found = await ask(e, "fxLsp/functions", uri=uri)
        assert [(f["name"], f["state"], f["stages"], f["variants"]) for f in found["functions"]] == snapshot(
            [
                ("ran", "failed", [{"name": "torch", "ops": 1}], []),
                (
                    "option",
                    "traced",
                    [{"name": "inference", "ops": 1}],
                    [{"name": "y", "title": "with y", "work": "variant=y"}],
                ),
            ]
        )

        # a hint stands before the failure
        assert [(hint.label, hint.tooltip) for hint in await e.hints(uri)][:1] == snapshot(
            [
                (
                    "-> ~f32[2, 3]",
                    "from aten.add.Tensor · partial: up to line 1, where it fails · "
                    "`~`: a guessed size; nothing in the code fixes it",
                )
            ]
        )

        # what ran is a document and a picture
        shown = await e.client.workspace_execute_command_async(
            types.ExecuteCommandParams(command="fxLsp.showStage", arguments=[uri, "ran", "torch"])
        )
        view = shown["uri"] if isinstance(shown, dict) else shown.uri
        assert view.endswith("/m.py/ran.torch.py")
        document = await ask(e, "fxLsp/document", uri=view)
        assert document["text"] == snapshot("""\
# m.py::ran · torch graph · 1 op
# torch 2.13.0 · as written, up to the failure
#   x: ~f32[2, 3]   (search)
# note: partial: up to line 1, where it fails: sizes do not fit

def torch(x: f32[2, 3]):
    # m.py:1  def ran(x): return partly(fail)
    y: f32[2, 3] = aten.add.Tensor(x, 1)
    return y
""")
        drawn = await ask(e, "fxLsp/graph", uri=view)
        assert (drawn["summary"], [s["name"] for s in drawn["stages"]]) == snapshot(
            ("partial: up to line 1, where it fails", ["torch"])
        )


async def test_code_that_is_not_reached_is_faded_for_clients_that_can(tmp_path: Path):
    async with traced(tmp_path, TEXT, capabilities=FADING) as (e, uri):
        found = [p for p in await e.problems(uri) if p.code == "unreached"]
        assert [(p.message, p.severity, p.tags, p.range.start.character, p.range.end.character) for p in found] == (
            snapshot([("branch not taken: y is None", DiagnosticSeverity.Hint, (DiagnosticTag.Unnecessary,), 22, 27)])
        )
    async with traced(tmp_path, TEXT) as (e, uri):
        assert "unreached" not in [p.code for p in await e.problems(uri)]
