"""Loops and layers that repeat are folded, and nothing else is; `tests/shown/cases/documents_of_loops.py` has more."""

import ast
import random
from collections.abc import Callable

import pytest
from inline_snapshot import snapshot
from samples import TRACE
from unfolding import check

from fx_lsp.features.documents.document import Document, render_stage
from fx_lsp.features.documents.folding import shorten
from fx_lsp.features.wording.uris import View, format_uri, parse_uri
from fx_lsp.model import Node, Span, Stage

Body = Callable[["Graph", int, str], str]


class Graph:
    """Nodes under the names that PyTorch gives: `mm`, `mm_1`, `mm_2`."""

    def __init__(self, *inputs: str) -> None:
        self.nodes = [Node(name, "placeholder", name, spec="f32[4, 8]") for name in inputs]
        self.taken: dict[str, int] = {}

    def __call__(self, op: str, *args: str, line: int = 1, spec: str = "f32[4, 8]", name: str = "") -> str:
        base = name or op
        number = self.taken[base] = self.taken.get(base, -1) + 1
        own = f"{base}_{number}" if number else base
        inputs = tuple(a for a in args if a.isidentifier())
        spans = (Span("/project/loop.py", line, 4, line, 20),)
        self.nodes.append(Node(own, "call_function", f"aten.{op}.default", args, inputs, (), spec, spans))
        return own

    def document(self, *outputs: str) -> Document:
        output = Node("output", "output", "output", (f"({', '.join(outputs)})",))
        document = render_stage(TRACE, Stage("inference", (*self.nodes, output)), lambda span: None)
        ast.parse(document.text)
        return document

    def text(self, *outputs: str) -> str:
        return "\n".join(line for line in self.document(*outputs).text.splitlines() if not line.startswith("# "))


def loop(g: Graph, steps: int) -> str:
    h = "h0"
    for t in range(steps):
        x = g("select", "x", "1", str(t), line=4)
        h = g("mm", x, "w", line=4) if t == 0 else g("addmm", h, x, "w", line=4)
        h = g("tanh", h, line=5, name="h")
    return h


def test_layers_that_differ_in_their_parameters():
    g = Graph(*(f"layers_{i}_{p}" for i in range(16) for p in ("weight", "bias")), "x")
    x = "x"
    for layer in range(16):
        y = g("addmm", f"layers_{layer}_bias", x, f"layers_{layer}_weight", line=7)
        x = g("add", x, g("relu", y, line=8), line=8)
    assert g.text(x) == snapshot("""\

def inference(
    layers_0_weight: f32[4, 8],
    layers_0_bias: f32[4, 8],
    # … the 2 inputs from layers_0_weight on 14 more times (28 inputs), then once more:
    #   stepping: layers_1, layers_2, … layers_14
    layers_15_weight: f32[4, 8],
    layers_15_bias: f32[4, 8],
    x: f32[4, 8],
):
    # loop.py:7
    addmm: f32[4, 8] = aten.addmm.default(layers_0_bias, x, layers_0_weight)

    # loop.py:8
    relu: f32[4, 8] = aten.relu.default(addmm)
    add: f32[4, 8] = aten.add.default(x, relu)

    # … the 3 ops from addmm on 14 more times (42 ops), then once more:
    #   passed on: add, add_1, … add_13
    #   stepping: layers_1, layers_2, … layers_14

    # loop.py:7
    addmm_15: f32[4, 8] = aten.addmm.default(layers_15_bias, add_14, layers_15_weight)

    # loop.py:8
    relu_15: f32[4, 8] = aten.relu.default(addmm_15)
    add_15: f32[4, 8] = aten.add.default(add_14, relu_15)

    return (add_15)\
""")


def test_values_of_all_rounds_in_a_list():
    g = Graph("x")
    g("stack", f"[{', '.join(f'h_{t}' for t in range(1, 200))}]", "0", line=2)
    assert g.text("stack") == snapshot("""\

def inference(x: f32[4, 8]):
    # loop.py:2
    stack: f32[4, 8] = aten.stack.default([h_1, h_2, ..., h_199], 0)  # 196 values in place of ...
    return (stack)\
""")


@pytest.mark.parametrize(
    ("items", "short"),
    [
        ([f"h_{i}" for i in range(40)], snapshot((("h_0", "h_1", "h_2", "...", "h_39"), 36))),
        ([f"t_{4 * i + 2}" for i in range(40, 0, -1)], snapshot((("t_162", "t_158", "...", "t_6"), 37))),
        (
            [name for i in range(20) for name in (f"a_{i}", f"b_{2 * i}")],
            snapshot((("a_0", "b_0", "a_1", "b_2", "a_2", "b_4", "...", "a_19", "b_38"), 32)),
        ),
        (
            ["first", *(f"h_{i * i}" for i in range(40))][:9],
            snapshot((("first", "h_0", "h_1", "h_4", "h_9", "h_16", "h_25", "h_36", "h_49"), 0)),
        ),
    ],
)
def test_long_lists(items: list[str], short: tuple[tuple[str, ...], int]):
    assert shorten(items) == short


def test_not_quite_periodic_is_not_folded():
    g = Graph("x", "w")
    h = "h0"
    for t in range(60):
        h = g("addmm", h, g("select", "x", "1", str(t * t % 60)), "w")
    assert check(g.nodes) == []


def test_a_round_with_another_input_ends_the_fold():
    g = Graph("x", "w", "w_0")
    h = "h0"
    for t in range(60):
        h = g("addmm", h, g("select", "x", "1", str(t)), "w_0" if t == 33 else "w")
    document = g.document(h)
    row = document.text.splitlines()[document.line_of("addmm_33") or 0]
    assert row == "    addmm_33: f32[4, 8] = aten.addmm.default(addmm_32, select_33, w_0)"
    assert len(check(g.nodes[3:])) == 2


@pytest.mark.parametrize("change", ["spec", "line", "mark"])
def test_rounds_that_a_reader_can_tell_apart_are_not_folded(change: str):
    g = Graph("x")
    for t in range(60):
        g("neg", "x", spec=f"f32[{t}]" if change == "spec" else "f32[4]", line=t if change == "line" else 1)
    assert check(g.nodes[1:], [str(t) if change == "mark" else "" for t in range(60)]) == []


def test_a_folded_node_is_on_the_line_of_its_fold():
    g = Graph("x", "w")
    document = g.document(loop(g, 20))
    lines = document.text.splitlines()
    names = [node.name for node in g.nodes]
    rows = [document.line_of(name) for name in names]
    assert None not in rows
    assert lines[document.line_of("h_9") or 0].lstrip().startswith("# …")
    assert [name for line in document.lines for name in line.nodes] == [*names, "output"]
    assert document.line_of("nothing") is None


def test_everything_is_in_the_full_view():
    view = View("/project/model.py", "Block.forward", "backward", full=True)
    assert format_uri(view) == snapshot("fx-lsp:/project/model.py/Block.forward.backward.full.py")
    assert parse_uri(format_uri(view)) == view
    g = Graph("x", "w")
    loop(g, 20)
    full = render_stage(TRACE, Stage("inference", tuple(g.nodes)), lambda span: None, full=True)
    assert [line.nodes for line in full.lines if len(line.nodes) > 1] == [("x", "w")]
    assert "…" not in full.text and "note: 0" not in full.text


@pytest.mark.parametrize("seed", range(40))
def test_unfolding_gives_every_node_back(seed: int):
    """Programs of loops within loops, with rounds here and there that are not like the others."""
    pick = random.Random(seed)
    g = Graph(*(f"w_{i}" for i in range(40)), "x")

    def block(depth: int, h: str, number: int) -> str:
        for line in range(pick.randint(1, 3)):
            if depth and pick.random() < 0.5:
                state, body = pick.getrandbits(32), pick.randint(4, 12)
                for t in range(body):
                    pick.seed(state if pick.random() < 0.97 else state + t)
                    h = block(depth - 1, h, t)
            args = pick.choice([(h,), (h, f"w_{number}"), (h, "x", str(3 * number)), ("x", h, f"[{number}, 4]")])
            h = g(pick.choice(["neg", "mm", "add"]), *args, line=10 * depth + line, name=pick.choice(["", "", "h"]))
        return h

    h = "x"
    for t in range(pick.randint(2, 8)):
        h = block(3, h, t)
    check(g.nodes[41:])


def test_bodies_within_bodies_unfold():
    g = Graph(*(f"w_{i}" for i in range(12)), "x")
    h = "x"
    for layer in range(12):
        for t in range(20):
            h = g("addmm", h, g("select", "x", "0", str(t), line=3), f"w_{layer}", line=3)
            h = g("tanh", h, line=4)
        h = g("norm", h, line=5)
    found = check(g.nodes[13:])
    assert [(f.period, f.rounds) for f in found] == snapshot([(61, 10), (3, 18), (3, 18)])


RECURRENT = """
import torch
# fx: x=f32[4, 24, 8], w=f32[8, 8]
def f(x, w):
    h = torch.zeros_like(x[:, 0])
    for t in range(24):
        h = torch.tanh(x[:, AT] @ w + h)
    return h
"""


@pytest.mark.torch
@pytest.mark.parametrize(("at", "folded"), [("t", True), ("t * t % 24", False)])
def test_unfolding_gives_every_node_of_a_trace_back(trace, at: str, folded: bool):
    traced = trace(RECURRENT.replace("AT", at))
    for stage in traced.trace.stages:
        nodes = [n for n in traced.stage(stage.name).nodes if n.op != "placeholder"]
        assert bool(check(nodes)) == folded
