"""Where do numbers begin to differ? The graphs of the compiler, and of a user's pass, compared node by node."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Traced, in_fork
from inline_snapshot import snapshot
from user_passes import TARGETS, own_request
from works import traced_for

from fx_lsp.tracer.job import run as run_job

SET = """
def own(gm: fx.GraphModule):
    for node in list(gm.graph.nodes):
        if node.target == aten.{}:
            {}
"""


def graphs(traced: Traced) -> dict[str, dict[str, Any]]:
    """The comparison of each stage, by its name."""
    return {row["stage"]: row for row in json.loads(traced.stage("diverge:json").text)}


@pytest.fixture
def compiled(warm_torch: None, tmp_path: Path):
    """Compare the compiler's graphs of a target; `before` runs first in the process that compiles."""
    return lambda name, source=TARGETS, before=None, work="diverge": traced_for(tmp_path, source, name, work, before)


@pytest.fixture
def own(warm_torch: None, tmp_path: Path):
    """Compare the graph of a target before and after a pass."""

    def do(source: str, target: str = "scaled", on: str = "", targets: str = TARGETS) -> Traced:
        request = own_request(tmp_path, source, "own", target, on, targets=targets)
        request = replace(request, work=f"diverge&{request.work}")
        return Traced(in_fork(lambda: run_job(request)), targets)

    return do


def test_every_graph_of_the_compiler_agrees(compiled):
    assert compiled("scaled").stage("diverge").text == snapshot("""\
# No result differs by more than rounding, on random inputs: 7 of 7 graphs compared.
#
# graph                              compared with  values  differ  first node
# torch                              joint          1       0
# dynamo                             joint          0       0
# decomposed                         joint          3       0
# joint:remove_noop_ops              decomposed     11      0
# joint:constant_fold_uniform_value  decomposed     11      0
# forward:partition                  decomposed     5       0
# backward:partition                 decomposed     6       0
""")


@pytest.mark.parametrize("name", ["biased", "Mlp", "whole", "strided", "writes"])
def test_no_result_differs(compiled, name):
    compared = graphs(compiled(name))
    assert len(compared) >= 3
    assert [row["trouble"] or row["first"] for row in compared.values()] == [None] * len(compared)
    assert all(row["compared"] for row in compared.values() if row["stage"] not in ("torch", "dynamo"))


def test_the_first_node_that_a_pass_changes(own):
    traced = own(SET.format("mul.Tensor", "node.args = (node.args[0], 0.51)"))
    assert traced.stage("diverge").text == snapshot("""\
# The first difference: in pass:own, mul is not as in inference.
#   user.py:9
#   mul: f32[4, 8] = aten.mul.Tensor(y, 0.51)
#   at (2, 7): 1.45503306, before 1.42650306, 1.42650306 in float64
#   absolute error 0.029, relative error 0.013
#   rounding before, against float64: 3.3e-08
#   its input y: agrees, relative error 3.3e-08
#
# graph     compared with  values  differ  first node
# pass:own  inference      4       2       mul
""")
    comments = {n.name: n.comment for n in traced.stage("pass:own").nodes if n.comment}
    assert comments == snapshot({"mul": "differs from inference", "sigmoid": "differs from inference"})


def test_a_node_of_backward(own):
    source = SET.format("sigmoid_backward.default", "node.args = (node.args[0], node.args[0])")
    first = graphs(own(source, on="joint"))["pass:own"]["first"]
    assert (first["node"], first["line"]) == snapshot(("sigmoid_backward", 9))


def test_a_pass_inside_the_compiler(compiled):
    def drop_factors() -> None:
        import torch

        def drop(graph: torch.fx.Graph) -> None:
            for node in graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor):
                node.args = (node.args[0], 1.0)

        torch._inductor.config.post_grad_custom_pre_pass = drop

    compared = graphs(compiled("scaled", before=drop_factors))
    differing = {name: row["first"]["node"] for name, row in compared.items() if row["first"]}
    assert differing == snapshot(
        {"forward:post_grad_custom_pre_pass": "mul", "backward:post_grad_custom_pre_pass": "mul_2"}
    )


def test_rounding_does_not_differ(own):
    row = graphs(
        own("""
def own_pattern(x):
    return aten.sigmoid.default(x)


def own_replacement(x):
    return aten.reciprocal.default(aten.add.Tensor(aten.exp.default(aten.neg.default(x)), 1))


own = (own_pattern, own_replacement)
""")
    )["pass:own"]
    assert (row["differ"], row["first"]) == (0, None)


def test_a_value_inside_that_no_result_depends_on(own):
    halve = "node.args = (node.args[0], 0.25); gm.graph.inserting_after(node).__enter__()"
    twice = "new = gm.graph.call_function(aten.mul.Tensor, (node, 2.0))"
    use = "node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)"
    row = graphs(own(SET.format("mul.Tensor", f"{halve}; {twice}; {use}; break")))["pass:own"]
    assert (row["differ"], row["first"]) == (1, None)


SPECIAL = """
import torch


# fx: x=f32[4, 8]
def special(x):
    y = torch.log(x)
    z = torch.relu(x) / 0
    return y, z + 1
"""


def test_nan_and_infinity(own, compiled):
    assert all(row["first"] is None for row in graphs(compiled("special", SPECIAL)).values())
    changed = own(SET.format("log.default", "node.target = aten.log1p.default"), "special", targets=SPECIAL)
    assert graphs(changed)["pass:own"]["first"]["node"] == "y"
    source = SET.format("add.Tensor", "node.target, node.args = aten.nan_to_num.default, node.args[:1]")
    first = graphs(own(source, "special", targets=SPECIAL))["pass:own"]["first"]
    assert (first["here"], first["before"], first["absolute"]) == snapshot(("0", "nan", "inf"))


def test_integers(own):
    first = graphs(own(SET.format("add.Tensor", "node.args = (node.args[0], 2)"), "whole"))["pass:own"]["first"]
    assert (first["node"], first["absolute"], first["here"], first["before"]) == snapshot(("add", 1.0, "2", "1"))


def test_another_shape(own):
    first = graphs(
        own(SET.format("sigmoid.default", "node.target, node.args = aten.sum.dim_IntList, (node.args[0], [1])"))
    )
    assert (first["pass:own"]["first"]["here"], first["pass:own"]["first"]["before"]) == snapshot(
        ("f32[4]", "f32[4, 8]")
    )


def test_random_numbers_are_the_same_or_left_out(own, compiled):
    source = SET.format("mul.Tensor", "node.args = (node.args[0], 3)")
    assert graphs(own(source, "dropped"))["pass:own"]["first"]["node"] == snapshot("mul")
    traced = compiled("dropped")
    compared = graphs(traced)
    assert [row["first"] for row in compared.values()] == [None] * len(compared)
    assert [name for name, row in compared.items() if row["random"]] == ["decomposed"], (
        "later graphs replay its numbers"
    )
    assert "computed from random numbers that the graphs draw in other ways" in traced.stage("diverge").text


SUMMED = """
import torch


# fx: x=f32[4, 8]
def summed(x, weight: torch.Tensor):
    total = torch.mm(x.exp(), weight).sum(1)
    return torch.mm(total[:, None], weight[:1]).relu()
"""


def test_the_code_of_inductor_agrees(compiled):
    compared = graphs(compiled("scaled", work="diverge&inductor"))
    rows = {name: row for name, row in compared.items() if name.startswith("inductor")}
    assert [(name, row["trouble"], row["compared"], row["first"]) for name, row in rows.items()] == snapshot(
        [
            ("inductor forward, on the CPU", "", 2, None),
            ("inductor backward, on the CPU", "", 1, None),
        ]
    )


def test_random_numbers_of_inductor_are_left_out(compiled):
    compared = graphs(compiled("dropped", work="diverge&inductor"))
    rows = {name: row for name, row in compared.items() if name.startswith("inductor")}
    assert [(row["trouble"], row["first"]) for row in rows.values()] == [("", None)] * 2
    assert rows["inductor forward, on the CPU"]["random"]


def test_a_wrong_lowering(compiled):
    def lower_wrongly() -> None:
        import torch
        from torch._inductor.lowering import lowerings

        right, mul = lowerings[torch.ops.aten.sum.dim_IntList], lowerings[torch.ops.aten.mul.Tensor]
        lowerings[torch.ops.aten.sum.dim_IntList] = lambda *args, **options: mul(right(*args, **options), 1.01)

    traced = compiled("summed", SUMMED, lower_wrongly, "diverge&inductor")
    first = {name: row["first"] for name, row in graphs(traced).items() if row["first"]}
    assert [(name, f["node"], f["inputs"]) for name, f in first.items()] == snapshot(
        [("inductor forward, on the CPU", "unsqueeze", [{"name": "total", "compared": False}])]
    )
    assert "in inductor forward, on the CPU, unsqueeze is not as in forward:partition" in traced.stage("diverge").text
    comments = {n.name: n.comment for n in traced.stage("forward:partition").nodes if n.comment}
    assert comments["unsqueeze"] == "differs in inductor forward, on the CPU"


MARKED = """
import torch


# fx: x=f32[4, 8], places=i64[4, 1]
def marked(x, places):
    full = torch.full((4, 8), 0.5)
    full.scatter_(1, places.clamp(0, 7), -1.0)
    return (full * x).sum()
"""


@pytest.mark.parametrize(
    ("name", "source"), [("scaled", TARGETS), ("summed", SUMMED), ("Mlp", TARGETS), ("marked", MARKED)]
)
def test_kernels_agree(compiled, name, source):
    pytest.importorskip("triton")
    rows = graphs(compiled(name, source, work="diverge-kernels"))
    assert [(row["trouble"], row["differ"], row["first"]) for row in rows.values()] == [("", 0, None)] * len(rows)
    assert all(row["compared"] for row in rows.values())


def test_a_wrong_kernel(compiled):
    pytest.importorskip("triton")

    def lower_wrongly() -> None:
        import fx_lsp.tracer.kernels.triton  # noqa: F401  it registers the lowerings
        from fx_lsp.codegen.ir.lowerings import _LOWERINGS

        _LOWERINGS["aten.exp"] = _LOWERINGS["aten.expm1"]

    traced = compiled("summed", SUMMED, lower_wrongly, "diverge-kernels")
    first = {name: row["first"] for name, row in graphs(traced).items() if row["first"]}
    assert [(name, f["node"], f["kernel"], f["line"]) for name, f in first.items()] == snapshot(
        [("kernels forward", "exp", "summed_forward_kernel_exp", 7)]
    )
    assert traced.stage("diverge").text.splitlines()[:4] == snapshot(
        [
            "# The first difference: in kernels forward, exp is not as in forward.",
            "#   user.py:7",
            "#   exp: f32[4, 8] = aten.exp.default(x)",
            "#   written by summed_forward_kernel_exp",
        ]
    )


def test_random_numbers_of_kernels_are_left_out(compiled):
    pytest.importorskip("triton")
    rows = graphs(compiled("dropped", work="diverge-kernels"))
    assert [(row["trouble"], row["first"]) for row in rows.values()] == [("", None)] * len(rows)
