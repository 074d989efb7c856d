import ast
from dataclasses import replace

import pytest
from inline_snapshot import snapshot
from samples import BACKWARD, FORWARD, RELU, SOURCE, TRACE, graph_of

from fx_lsp.features.documents.document import render_call, render_stage
from fx_lsp.model import InputSpec, Node, Span, Stage


def source_line(span: Span) -> str | None:
    return SOURCE.splitlines()[span.line - 1]


def test_forward():
    document = render_stage(TRACE, FORWARD, source_line)
    assert document.text == snapshot("""\
# model.py::f · forward graph · 3 ops
# torch 2.13.0 · 3 ops forward · 2 backward · saves ~128 B
#   x: ~f32[8, 128]   (search)
#   w: f32[128, 4]   (call site, line 12)
#   n = 4   (default)
# note: the whole module was imported, because `x` is global

def forward(
    x: f32[8, 128],  # saved for backward, 4 KiB
    w: f32[128, 4],
):
    # model.py:5  y = x @ w
    mm: f32[8, 4] = aten.mm.default(x, w)

    # model.py:7  y = y.relu() + 1
    relu: f32[8, 4] = aten.relu.default(mm)  # saved for backward, 128 B

    # model.py:8  return y.sum(dim=-1)
    loss: "f32[]" = aten.sum.default(relu)  # keepdim
    return (loss, x, relu)
""")


def test_backward():
    assert render_stage(TRACE, BACKWARD, source_line).text.partition("\n\n")[2] == snapshot("""\
def backward(relu: f32[8, 4]):
    # model.py:7  y = y.relu() + 1
    where: f32[8, 4] = aten.where.self(relu, 0)

    # model.py:5  y = x @ w
    grad_w: f32[128, 4] = aten.mm.default(x, where)
    return (None, grad_w)
""")


@pytest.mark.parametrize("stage", [FORWARD, BACKWARD, Stage("inference", ()), replace(FORWARD, name="pass-2: fuse")])
def test_every_document_is_python(stage: Stage):
    ast.parse(render_stage(TRACE, stage, source_line).text)


@pytest.mark.parametrize(
    "spec",
    ["f32[]", "f32[8]@cuda", "f32[8]@cuda:0", "f32[8, 128](1, 8)", "(f32[2], i64[])", "f32[B, 2*S + 1]", "Sym(s0)"],
)
def test_every_spec_is_an_annotation(spec: str):
    stage = graph_of("forward", f"x: {spec}", f"y: {spec} = aten.neg.default(x)", "return y")
    text = render_stage(TRACE, stage, source_line).text
    ast.parse(text)
    assert spec in text


def test_text_from_the_program_stays_in_its_comment():
    trace = replace(TRACE, inputs=(InputSpec("s", "'a\nb'", "default", "x\ny"),), notes=("one\ntwo",))
    ast.parse(render_stage(trace, FORWARD, lambda span: "x = (\n 1").text)


def test_lines_know_their_source():
    document = render_stage(TRACE, FORWARD, source_line)
    lines = document.text.splitlines()
    assert len(document.lines) == len(lines)
    row = next(i for i, line in enumerate(lines) if line.startswith("    relu:"))
    assert document.lines[row].spans[0] == RELU


@pytest.mark.parametrize(
    ("node", "call"),
    [
        (Node("a", "call_function", "getitem", ("split", "0")), "split[0]"),
        (Node("a", "call_function", "_operator.getitem", ("split", "1")), "split[1]"),
        (Node("a", "call_method", "view", ("x", "2", "-1")), "x.view(2, -1)"),
        (Node("a", "call_module", "mlp.up", ("x",)), "self.mlp.up(x)"),
        (Node("a", "get_attr", "weight"), "self.weight"),
        (
            Node("a", "call_function", "aten.sum.dim_IntList", ("x", "[1]", "keepdim=True")),
            "aten.sum.dim_IntList(x, [1], keepdim=True)",
        ),
    ],
)
def test_calls_are_written_as_python(node: Node, call: str):
    assert render_call(node) == call


def test_inputs_that_share_a_line_are_not_folded():
    stage = graph_of("forward", "x: f32[4]", "y: f32[4]", "add: f32[4] = aten.add.Tensor(x, y)", "return (add,)")
    document = render_stage(replace(TRACE, saved=()), stage, source_line)
    assert "def forward(x: f32[4], y: f32[4])" in document.text
    assert "folded" not in document.text
