"""The list of stages: what each pass changed, what changed nothing, and what could not be made."""

from dataclasses import replace

from inline_snapshot import snapshot
from samples import FORWARD, SOURCE, TRACE, span

from fx_lsp.features.documents.passes import change_text, render_passes, render_run, steps
from fx_lsp.model import Change, Remark, Stage, StageInfo

PIPELINE = replace(
    TRACE,
    stages=(
        StageInfo("torch", 0, 0, "as written: torch.fx.symbolic_trace", note="torch.fx.symbolic_trace cannot trace it"),
        StageInfo("joint", 9, 13, "AOTAutograd"),
        StageInfo("decomposed", 1_240, 1_300, "AOTAutograd with Inductor's decompositions", "joint"),
        StageInfo("joint:dedupe", 1_240, 1_300, "joint passes: dedupe", "decomposed", Change()),
        StageInfo(
            "joint:remove_noop_ops", 1_234, 1_294, "joint passes: remove_noop_ops", "decomposed", Change(0, 6, 2)
        ),
        StageInfo("joint:other", 1_234, 1_294, "joint passes: other", "joint:remove_noop_ops", Change()),
        StageInfo("joint:checked", 1_234, 1_294, "checked", "joint:remove_noop_ops", Change(), "the same function"),
        StageInfo("forward:code", 0, 0, "Inductor's output code"),
        StageInfo("backward:last", 3, 4, "post-grad passes: last", "backward", Change()),
    ),
)


def test_passes_that_changed_nothing_are_hidden():
    assert render_passes(PIPELINE).text == snapshot("""\
# model.py::f · passes
# torch 2.13.0 · compiler passes, stage by stage
#   x: ~f32[8, 128]   (search)
#   w: f32[128, 4]   (call site, line 12)
#   n = 4   (default)
# note: the whole module was imported, because `x` is global

# stage                     ops  change   made by
# torch                                   as written: torch.fx.symbolic_trace
#   torch.fx.symbolic_trace cannot trace it
# joint                       9           AOTAutograd
# decomposed              1,240           AOTAutograd with Inductor's decompositions
# joint:remove_noop_ops   1,234  −6 ~2    joint passes: remove_noop_ops
# joint:checked           1,234  nothing  checked
#   the same function
# forward:code                            Inductor's output code
#
# 3 passes changed nothing:
#   joint:dedupe, joint:other, backward:last
""")


def test_all_of_them():
    rows = [line.text for line in render_passes(PIPELINE, every=True).lines if line.nodes]
    assert [row.split()[1] for row in rows] == [info.name for info in PIPELINE.stages]


def test_a_row_knows_its_stage():
    document = render_passes(PIPELINE)
    assert document.lines[document.line_of("joint:remove_noop_ops") or 0].text.startswith("# joint:remove_noop_ops")
    assert document.line_of("joint:dedupe") is None


def test_hidden_passes_belong_to_the_row_after_them_or_the_last():
    assert [(s.info.name, [i.name for i in s.hidden]) for s in steps(PIPELINE) if s.hidden] == snapshot(
        [
            ("joint:remove_noop_ops", ["joint:dedupe"]),
            ("joint:checked", ["joint:other"]),
            ("forward:code", ["backward:last"]),
        ]
    )
    assert [s.info.name for s in steps(PIPELINE) if not s.shown] == snapshot(["torch"])


def test_changes_as_text():
    assert change_text(None) == ""
    assert change_text(Change()) == "nothing"
    assert change_text(Change(1_000, 2, 3, 4)) == snapshot("+1,000 −2 ~3 ↕4")


def test_many_names_are_wrapped():
    passes = [StageInfo(f"joint:a_pass_with_a_long_name_{i}", 9, 13, "", "joint", Change()) for i in range(9)]
    page = render_passes(replace(TRACE, stages=(*TRACE.stages, *passes)))
    assert max(len(line.text) for line in page.lines) <= 120
    assert sum(line.text.count("a_pass_with") for line in page.lines) == 9


def test_what_a_pass_of_ones_own_did():
    after = Stage("fuse", tuple(n for n in FORWARD.nodes if n.name != "relu"))
    infos = (StageInfo("forward", 3, 6, "given"), StageInfo("fuse", 2, 5, "fuse", "forward", Change(0, 1)))
    remark = Remark("fuse raises KeyError: 'x'", span("y.relu()", SOURCE), "error")
    run = replace(TRACE, stages=infos, remarks=(remark,))
    page = render_run(run, {"forward": FORWARD, "fuse": after})
    assert page.text.partition("\n\n")[2] == snapshot("""\
# stage       ops  change  made by
# forward       3          given
# fuse          2  −1      fuse

--- forward
+++ fuse
@@ -1,6 +1,5 @@
     x: f32[8, 128]  # input
     w: f32[128, 4]  # input
     mm: f32[8, 4] = aten.mm.default(x, w)
-    relu: f32[8, 4] = aten.relu.default(mm)
     loss: "f32[]" = aten.sum.default(relu)  # keepdim
     return (loss, x, relu)

# /project/model.py:7: fuse raises KeyError: 'x'
""")


def test_what_a_matcher_found_is_marked_in_the_graph():
    marked = replace(FORWARD, nodes=tuple(replace(n, comment="match 1" * (n.name == "relu")) for n in FORWARD.nodes))
    page = Stage("own:matches", text="# match 1\n    relu = aten.relu.default(mm)\n")
    infos = (StageInfo("forward", 3, 6, "given"), StageInfo(page.name, 0, 0, "where own matches"))
    run = replace(TRACE, stages=infos)
    text = render_run(run, {"forward": marked, page.name: page}).text
    assert text.partition("where own matches\n")[2] == snapshot("""\

# match 1
    relu = aten.relu.default(mm)

def forward(
    x: f32[8, 128],  # saved for backward, 4 KiB
    w: f32[128, 4],
):
    # model.py:5
    mm: f32[8, 4] = aten.mm.default(x, w)

    # model.py:7
    relu: f32[8, 4] = aten.relu.default(mm)  # match 1 · saved for backward, 128 B

    # model.py:8
    loss: "f32[]" = aten.sum.default(relu)
    return (loss, x, relu)
""")
    changed = (*infos, StageInfo("own", 3, 6, "own", "forward", Change(changed=1)))
    assert "def forward" not in render_run(replace(run, stages=changed), {"forward": marked, page.name: page}).text
