"""Is it still the same function? Passes whose graphs are run before and after, on real tensors."""
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot
from user_passes import run_own

SET = """
def own(gm: fx.GraphModule):
    for node in list(gm.graph.nodes):
        if node.target == aten.{}:
            {}
"""
INSERT = "with gm.graph.inserting_after(node):\n                new = gm.graph.call_function({})\n            node.replace_all_uses_with(new, delete_user_cb=lambda user: user is not new)"


@pytest.fixture
def note(warm_torch: None, tmp_path: Path):
    def do(source: str, target: str = "scaled", **options) -> str:
        ran = run_own(tmp_path, source, "own", target, check=True, **options)
        assert ran.errors == [], ran.errors
        return ran.notes.get("own", "")

    return do


def after(op: str, call: str) -> str:
    """A pass that inserts a call behind an operation."""
    return SET.format(op, INSERT.format(call))


def test_the_same(note):
    assert note(SET.format("mul.Tensor", "node.target, node.args = aten.div.Tensor, (node.args[0], 2.0)")) == snapshot(
        "checked on random inputs: the same outputs and gradients"
    )
    twice = "node.args = (gm.graph.call_function(aten.mul.Tensor, (node.args[0], 1.0)),)"
    assert note(SET.format("sigmoid.default", f"with gm.graph.inserting_before(node): {twice}")) == snapshot(
        "checked on random inputs: the same outputs and gradients"
    )


def test_rounding_is_no_difference(note):
    source = """
def own_pattern(x):
    return aten.sigmoid.default(x)


def own_replacement(x):
    return aten.reciprocal.default(aten.add.Tensor(aten.exp.default(aten.neg.default(x)), 1))


own = (own_pattern, own_replacement)
"""
    assert "the same outputs and gradients" in note(source)


def test_another_function(note):
    assert note(SET.format("relu.default", "node.target = aten.gelu.default")) == snapshot(
        "it is another function: output[0] differs by up to 0.02"
    )


def test_another_shape_or_dtype(note):
    assert note(after("sigmoid.default", "aten.sum.dim_IntList, (node, [1])")) == snapshot(
        "it is another function: output[0] was f32[4, 8] and is f32[4]"
    )
    assert note(after("sigmoid.default", "aten._to_copy.default, (node,), {'dtype': torch.float64}")) == snapshot(
        "it is another function: output[0] was f32[4, 8] and is f64[4, 8]"
    )


def test_gradients_differ_while_outputs_agree(note):
    assert note(after("relu.default", "aten.detach.default, (node,)")) == snapshot(
        "it is another function: the gradient of x is lost"
    )
    source = after("mm.default", "aten.detach.default, (node,)")
    assert note(source, "biased") == snapshot("it is another function: the gradient of x is lost")


def test_other_strides(note):
    assert note(
        after("relu.default", "aten.clone.default, (node,), {'memory_format': torch.contiguous_format}"), "strided"
    ) == snapshot("checked on random inputs: the same outputs and gradients; output[0] has other strides")


def test_whole_numbers_and_truth_values(note):
    assert note(
        SET.format("add.Tensor", "node.args = (node.args[1] * node.args[0] if False else node.args[0], 2)"), "whole"
    ) == snapshot("it is another function: output[0] differs by up to 1")
    assert note(SET.format("bitwise_not.default", "node.target = aten.logical_not.default"), "whole") == snapshot(
        "checked on random inputs: the same outputs"
    )
    assert note(SET.format("bitwise_not.default", "node.target = aten.clone.default"), "whole") == snapshot(
        "it is another function: output[1] differs by up to 1"
    )


def test_random_numbers(note):
    assert note(
        SET.format("mul.Tensor", "node.target, node.args = aten.add.Tensor, (node.args[0], node.args[0])"), "dropped"
    ) == snapshot("checked on random inputs: the same outputs and gradients")
    assert note(SET.format("mul.Tensor", "node.args = (node.args[0], 3)"), "dropped") == snapshot(
        "not certain, because the graph uses random numbers: output[0] differs by up to 4.23"
    )


def test_what_is_left_in_an_input(note):
    """Removing the write to an input changes no output."""
    source = """
def own(gm: fx.GraphModule):
    for node in gm.graph.nodes:
        if node.target == aten.copy_.default:
            node.args = (node.args[0], node.args[0])
"""
    assert note(source, "writes") == snapshot("it is another function: its final value of x differs by up to 2.18")


def test_a_lost_output(note):
    assert note("def own(gm: fx.GraphModule):\n    gm.graph.output_node().args = ((None,),)") == snapshot(
        "it is another function: output[0] is lost"
    )


def test_inputs_are_the_same_where_one_is_gone(note):
    source = """
def own(gm: fx.GraphModule):
    for node in list(gm.graph.nodes):
        if node.op == "placeholder" and not node.users:
            gm.graph.erase_node(node)
"""
    targets = "import torch\n\n# fx: x=f32[4], unused=f32[4], y=f32[4]\ndef f(x, unused, y):\n    return x - y\n"
    source += "    gm.graph.output_node().args = (tuple(gm.graph.output_node().args[0]) * 1,)\n"
    assert note(source, "f", targets=targets) == snapshot("checked on random inputs: the same outputs and gradients")


SWAPS = """
def own(gm: fx.GraphModule):
    for node in gm.graph.nodes:
        if node.op == "call_module":
            node.target = {"up": "down", "down": "up"}[node.target]
"""


def test_layers_of_one_shape_are_told_apart(note):
    assert note(SWAPS, "Mlp", on="torch") == snapshot("it is another function: output differs by up to 23.9")


def test_a_copy_of_a_module_holds_the_same(note):
    source = """
import copy


def own(gm: fx.GraphModule):
    gm = copy.deepcopy(gm)
    for node in gm.graph.nodes:
        if node.target is torch.relu:
            node.target = torch.nn.functional.relu
    return gm
"""
    assert note(source, "Mlp", on="torch") == snapshot(
        "checked on random inputs: the same outputs and gradients; assumed: its copy has the same weights"
    )


def test_what_a_pass_makes_itself_is_what_it_is(note):
    source = """
TWO = torch.full((8,), 2.0)


def own(gm: fx.GraphModule):
    gm.register_buffer("two", TWO)
    for node in gm.graph.nodes:
        if node.target == aten.mul.Tensor:
            with gm.graph.inserting_before(node):
                node.target, node.args = aten.div.Tensor, (node.args[0], gm.graph.get_attr("two"))
"""
    assert note(source) == snapshot("checked on random inputs: the same outputs and gradients")


def test_weights_that_are_computed_from_others_are_not_known(note):
    source = """
def own(gm: fx.GraphModule):
    gm.up.weight = nn.Parameter(gm.up.weight * 2)
    for node in gm.graph.nodes:
        if node.target is torch.relu:
            node.target = torch.nn.functional.relu
"""
    assert note(source, "Mlp", on="torch") == snapshot(
        "not checked: the graph after was not run, because it cannot be run on the CPU: up.weight is computed from tensors of the module, which have no values in a trace"
    )


def test_what_needs_too_much_is_not_run(note):
    targets = "import torch\n\n# fx: x=f32[100000, 10000]\ndef f(x):\n    return torch.relu(x)\n"
    assert note(SET.format("relu.default", "node.target = aten.neg.default"), "f", targets=targets) == snapshot(
        "not checked: the graph before was not run, because its values need 7.5 GiB"
    )


@pytest.mark.parametrize("on", ["joint", "forward", "backward", "core"])
def test_every_graph_can_be_checked(note, on):
    source = """
def own(gm: fx.GraphModule):
    for node in gm.graph.nodes:
        if node.target in (aten.t.default, aten.permute.default):
            node.target, node.args = aten.transpose.int, (node.args[0], 0, 1)
"""
    assert note(source, "Mlp", on=on).startswith("checked on random inputs: the same")


def test_buffers_have_no_gradient_and_are_written_at_the_end(note):
    """Batch norm in training: its statistics are inputs of the graph, and the graph writes the new ones into them."""
    targets = """
import torch
from torch import nn


# fx: x=f32[4, 3, 8]
class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(x).relu()
"""
    same = SET.format("relu.default", "node.target, node.args = aten.clamp_min.default, (node.args[0], 0)")
    assert "the same outputs and gradients" in note(same, "Normed", targets=targets)
    other = "node.args = (node.args[0], node.args[0])"
    assert "its final value of norm_running_mean differs" in note(
        SET.format("copy_.default", other), "Normed", targets=targets
    )
