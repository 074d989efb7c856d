"""What a pass changed, as text: nodes are followed by their names."""

from dataclasses import replace

import pytest
from inline_snapshot import snapshot
from samples import ADD, FORWARD, TRACE, graph_of

from fx_lsp.features.documents.diffs import diff_lines, edits, render_diff
from fx_lsp.model import Node, Stage


def diff(before: Stage, after: Stage) -> str:
    return "\n".join(line.text for line in diff_lines(before, after))


def changes(before: Stage, after: Stage) -> str:
    """The lines below the heads of the stages and of the hunks."""
    return "\n".join(line.text for line in diff_lines(before, after)[2:] if not line.text.startswith("@@"))


BEFORE = graph_of(
    "joint",
    "x: f32[4]",
    "w: f32[4]",
    "a: f32[4] = aten.mul.Tensor(x, w)",
    "b: f32[4] = aten.clone.default(a)",
    "c: f32[4] = aten.add.Tensor(b, 1)",
    "return c",
)


def test_what_is_gone_stands_before_what_is_new():
    after = graph_of(
        "joint:fold",
        "x: f32[4]",
        "w: f32[4]",
        "one: f32[] = aten.full.default([], 1)",
        "fma: f32[4] = prims.fma.default(x, w, one)",
        "return fma",
    )
    assert diff(BEFORE, after) == snapshot("""\
--- joint
+++ joint:fold
@@ -1,6 +1,5 @@
     x: f32[4]  # input
     w: f32[4]  # input
-    a: f32[4] = aten.mul.Tensor(x, w)
-    b: f32[4] = aten.clone.default(a)
-    c: f32[4] = aten.add.Tensor(b, 1)
+    one: "f32[]" = aten.full.default([], 1)
+    fma: f32[4] = prims.fma.default(x, w, one)
-    return c
+    return fma\
""")


def test_a_node_with_other_arguments_stands_below_itself():
    after = Stage("joint:pass", tuple(replace(n, args=("a", "1")) if n.name == "c" else n for n in BEFORE.nodes))
    assert changes(BEFORE, after) == snapshot("""\
     w: f32[4]  # input
     a: f32[4] = aten.mul.Tensor(x, w)
     b: f32[4] = aten.clone.default(a)
-    c: f32[4] = aten.add.Tensor(b, 1)
+    c: f32[4] = aten.add.Tensor(a, 1)
     return c\
""")


def test_a_node_that_computes_the_same_in_another_way_keeps_its_place():
    after = Stage(
        "joint:pass", tuple(replace(n, target="aten.alias.default") if n.name == "b" else n for n in BEFORE.nodes)
    )
    assert changes(BEFORE, after) == snapshot("""\
     x: f32[4]  # input
     w: f32[4]  # input
     a: f32[4] = aten.mul.Tensor(x, w)
-    b: f32[4] = aten.clone.default(a)
+    b: f32[4] = aten.alias.default(a)
     c: f32[4] = aten.add.Tensor(b, 1)
     return c\
""")


def test_another_layout_is_a_difference():
    after = Stage("joint:pass", tuple(replace(n, spec="f32[4](2)") if n.name in "ab" else n for n in BEFORE.nodes))
    assert changes(BEFORE, after) == snapshot("""\
     x: f32[4]  # input
     w: f32[4]  # input
-    a: f32[4] = aten.mul.Tensor(x, w)
+    a: f32[4](2) = aten.mul.Tensor(x, w)
-    b: f32[4] = aten.clone.default(a)
+    b: f32[4](2) = aten.clone.default(a)
     c: f32[4] = aten.add.Tensor(b, 1)
     return c\
""")


def test_a_node_that_moved_says_so_at_both_places():
    x, w, a, b, c, output = BEFORE.nodes
    late = Node("late", "call_function", "aten.neg.default", ("x",), spec="f32[4]")
    before, after = Stage("joint", (x, w, late, a, b, c, output)), Stage("joint:pass", (x, w, a, b, c, late, output))
    assert changes(before, after) == snapshot("""\
     x: f32[4]  # input
     w: f32[4]  # input
-    late: f32[4] = aten.neg.default(x)  # moved
     a: f32[4] = aten.mul.Tensor(x, w)
     b: f32[4] = aten.clone.default(a)
     c: f32[4] = aten.add.Tensor(b, 1)
+    late: f32[4] = aten.neg.default(x)  # moved here
     return c\
""")


def test_another_number_of_an_input_is_no_difference():
    after = Stage("decomposed", tuple(replace(n, target="primals_7") if n.name == "w" else n for n in BEFORE.nodes))
    assert changes(BEFORE, after) == snapshot("""\
# no difference\
""")


def test_another_node_of_the_same_name_has_not_moved():
    x, w, a, b, c, output = BEFORE.nodes
    other = replace(b, target="aten.neg.default", spans=(ADD,))
    assert changes(BEFORE, Stage("decomposed", (x, w, a, c, other, output))) == snapshot("""\
     x: f32[4]  # input
     w: f32[4]  # input
     a: f32[4] = aten.mul.Tensor(x, w)
-    b: f32[4] = aten.clone.default(a)
     c: f32[4] = aten.add.Tensor(b, 1)
+    b: f32[4] = aten.neg.default(a)
     return c\
""")


def test_hunks_have_three_lines_around_and_numbers_of_both_sides():
    nodes = [Node(f"n{i}", "call_function", "aten.neg.default", (f"n{i - 1}",), spec="f32[4]") for i in range(1, 31)]
    after = [replace(n, args=("x",)) if n.name in ("n5", "n12", "n29") else n for n in nodes if n.name != "n20"]
    found = diff(Stage("joint", tuple(nodes)), Stage("joint:pass", tuple(after)))
    assert [line for line in found.splitlines() if line.startswith("@@")] == snapshot(
        ["@@ -2,14 +2,14 @@", "@@ -17,7 +17,6 @@", "@@ -26,5 +25,5 @@"]
    )
    assert sum(line.startswith(" ") for line in found.splitlines()) == snapshot(22)


def test_a_first_and_an_empty_graph():
    assert diff(Stage("joint"), BEFORE).splitlines()[2] == snapshot("@@ -0,0 +1,6 @@")
    assert diff(BEFORE, Stage("joint:pass")).splitlines()[2] == snapshot("@@ -1,6 +0,0 @@")


def test_texts_are_compared_by_line():
    before = Stage("forward:code", text="a = 1\nb = 2\n")
    assert diff(before, Stage("forward:code~2", text="a = 1\nb = 3\n")) == snapshot("""\
--- forward:code
+++ forward:code~2
@@ -1,2 +1,2 @@
 a = 1
-b = 2
+b = 3\
""")


def test_the_document_has_a_header_and_its_lines_know_nodes_and_source():
    after = Stage("forward:pass", tuple(n for n in FORWARD.nodes if n.name != "relu"))
    document = render_diff(TRACE, FORWARD, after)
    assert document.text == snapshot("""\
# model.py::f · forward:pass
# torch 2.13.0 · forward → forward:pass
#   x: ~f32[8, 128]   (search)
#   w: f32[128, 4]   (call site, line 12)
#   n = 4   (default)

--- forward
+++ forward:pass
@@ -1,6 +1,5 @@
     x: f32[8, 128]  # input
     w: f32[128, 4]  # input
     mm: f32[8, 4] = aten.mm.default(x, w)
-    relu: f32[8, 4] = aten.relu.default(mm)
     loss: "f32[]" = aten.sum.default(relu)  # keepdim
     return (loss, x, relu)
""")
    line = document.lines[document.line_of("relu") or 0]
    assert line.text.startswith("-") and line.spans == FORWARD.nodes[3].spans


@pytest.mark.parametrize("kept", [range(0, 6, 2), range(5, -1, -1), (3, 1, 4), ()])
def test_the_lines_are_those_of_both_stages(kept: tuple[int, ...]):
    after = Stage("after", tuple(BEFORE.nodes[i] for i in kept))
    found = list(edits(BEFORE, after))
    assert [e.node.name for e in found if e.mark in " -"] == [n.name for n in BEFORE.nodes]
    assert [e.node.name for e in found if e.mark in " +"] == [n.name for n in after.nodes]
