"""What goes wrong in a pass of the user, what it may do to a graph, and the graphs that it runs on."""
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot
from user_passes import TARGETS, run_own


@pytest.fixture
def ran(warm_torch: None, tmp_path: Path):
    def do(source: str, name: str = "own", target: str = "scaled", **options):
        return run_own(tmp_path, source, name, target, **options)

    return do


PRE = """
def own(gm: fx.GraphModule):
    g = gm.graph
    x, relu, add, mul, sigmoid, output = g.nodes
"""

WRONG = {
    "used before it is there": "relu.args = (sigmoid,)",
    "gone and still used": "relu._remove_from_list()",
    "erased while it is used": "g.erase_node(relu)",
    "no function": "add.target = 'frob'",
    "no such attribute": "with g.inserting_before(sigmoid): sigmoid.args = (g.get_attr('table'),)",
    "an argument too few": "add.args = (relu,)",
    "an argument too many": "relu.args = (x, 3)",
    "a wrong shape": "with g.inserting_before(sigmoid): sigmoid.args = (g.call_function(aten.view.default, (add, [3, 5])),)",
    "one more input": "with g.inserting_before(x): add.args = (relu, g.placeholder('more'))",
    "raises": "raise KeyError('boo')",
    "raises because": "try: {}['boo']\n    except KeyError as e: raise RuntimeError('no boo') from e",
    "ends the process": "import sys; sys.exit(3)",
    "writes a file": "open('/nowhere.txt', 'w')",
    "starts a program": "import os; os.system('true')",
    "recursion": "return own(gm)",
}


@pytest.mark.parametrize("what", WRONG)
def test_what_goes_wrong_stands_on_its_line(ran, what):
    result = ran(PRE + "    " + WRONG[what])
    assert result.changes["inference"] == "" and len(result.trace.stages) == 2
    assert result.errors == ERRORS[what]
    assert result.notes


ERRORS = snapshot(
    {
        "used before it is there": [
            "own leaves a broken graph behind: Argument 'sigmoid' of Node 'relu' was used before it has been defined! Please check that Nodes in the graph are topologically ordered @ def own(gm: fx.GraphModule):"
        ],
        "gone and still used": [
            "own leaves a broken graph behind: Argument 'relu' of Node 'add' was used before it has been defined! Please check that Nodes in the graph are topologically ordered (add is y) @ def own(gm: fx.GraphModule):"
        ],
        "erased while it is used": [
            "own raised RuntimeError: Tried to erase Node relu but it still had 1 users in the graph: {add: None}! (add is y) @ g.erase_node(relu)"
        ],
        "no function": [
            "own leaves a broken graph behind: Node add target frob has type str but a Callable is expected (add is y) @ def own(gm: fx.GraphModule):"
        ],
        "no such attribute": [
            "own leaves a broken graph behind: Node table target table references nonexistent attribute table @ def own(gm: fx.GraphModule):"
        ],
        "an argument too few": [
            "the graph that own leaves behind cannot be run: y = aten.add.Tensor(…): aten::add() is missing value for argument 'other'. Declaration: aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor (add is y) @ def own(gm: fx.GraphModule):"
        ],
        "an argument too many": [
            "the graph that own leaves behind cannot be run: relu = aten.relu.default(…): aten::relu() expected at most 1 argument(s) but received 2 argument(s). Declaration: aten::relu(Tensor self) -> Tensor @ def own(gm: fx.GraphModule):"
        ],
        "a wrong shape": [
            "the graph that own leaves behind cannot be run: view_default = aten.view.default(…): shape '[3, 5]' is invalid for input of size 32 @ def own(gm: fx.GraphModule):"
        ],
        "one more input": [
            "the graph that own leaves behind cannot be run: no value is passed for its input more @ def own(gm: fx.GraphModule):"
        ],
        "raises": ["own raised KeyError: 'boo' @ raise KeyError('boo')"],
        "raises because": [
            "own raised RuntimeError: no boo @ except KeyError as e: raise RuntimeError('no boo') from e"
        ],
        "ends the process": ["own exits the process (sys.exit(3)) @ import sys; sys.exit(3)"],
        "writes a file": [
            "own writes the file /nowhere.txt; tracing does not allow such side effects @ open('/nowhere.txt', 'w')"
        ],
        "starts a program": [
            "own starts the program 'true'; traced code starts only those that the setting `fx-lsp.limits.programs` or "
            "`--allow-program` names @ import os; os.system('true')"
        ],
        "recursion": [
            "own raised RecursionError: maximum recursion depth exceeded @ x, relu, add, mul, sigmoid, output = g.nodes"
        ],
    }
)


def test_a_file_that_cannot_be_loaded(ran):
    assert ran("from nothere import helper\n\ndef own(gm: fx.GraphModule):\n    helper(gm)").errors == snapshot(
        ["own cannot be loaded: ModuleNotFoundError: No module named 'nothere' @ from nothere import helper"]
    )
    assert ran("TABLE = {}['x']\n\ndef own(gm: fx.GraphModule):\n    return TABLE").errors == snapshot(
        ["own cannot be loaded: KeyError: 'x' @ TABLE = {}['x']"]
    )
    assert ran("import sys\n\nX = sys.exit(1)\n\ndef own(gm: fx.GraphModule):\n    return X").errors == snapshot(
        ["own cannot be loaded: the code exits the process (sys.exit(1)) @ X = sys.exit(1)"]
    )


def test_specs_are_those_of_the_rewritten_graph(ran):
    """Also of nodes behind the one that was changed in place."""
    result = ran(PRE + "    relu.target, relu.args = aten.mm.default, (x, g.placeholder)".replace("g.placeholder", "x"))
    assert "cannot be multiplied" in result.errors[0]
    result = ran(PRE + "    relu.target, relu.args = aten.sum.dim_IntList, (x, [1])")
    assert result.errors == [] and result.diff("own") == snapshot("""\
-    relu: f32[4, 8] = aten.relu.default(x)
+    relu: f32[4] = aten.sum.dim_IntList(x, [1])
-    y: f32[4, 8] = aten.add.Tensor(relu, 1.0)
+    y: f32[4] = aten.add.Tensor(relu, 1.0)
-    mul: f32[4, 8] = aten.mul.Tensor(y, 0.5)
+    mul: f32[4] = aten.mul.Tensor(y, 0.5)
-    sigmoid: f32[4, 8] = aten.sigmoid.default(mul)
+    sigmoid: f32[4] = aten.sigmoid.default(mul)
""")


def test_an_attribute_that_a_pass_adds(ran):
    body = """    gm.register_buffer("table", torch.ones(8))
    with g.inserting_before(sigmoid):
        sigmoid.args = (g.call_function(aten.mul.Tensor, (mul, g.get_attr("table"))),)
"""
    assert ran(PRE + body).diff("own") == snapshot("""\
+    table: f32[8] = self.table
+    mul_tensor: f32[4, 8] = aten.mul.Tensor(mul, table)
-    sigmoid: f32[4, 8] = aten.sigmoid.default(mul)
+    sigmoid: f32[4, 8] = aten.sigmoid.default(mul_tensor)
""")


def test_an_input_that_a_pass_removes(ran):
    source = """
def own(gm: fx.GraphModule):
    for node in list(gm.graph.nodes):
        if node.op == "placeholder" and node.name.endswith(ENDING):
            node.replace_all_uses_with(next(iter(gm.graph.nodes)))
            gm.graph.erase_node(node)
"""
    targets = "import torch\n\n# fx: x=f32[4], y=f32[4], z=f32[3]\ndef f(x, y, z):\n    return x + y, z.exp()\n"
    result = ran(source.replace("ENDING", "'arg1_1'"), target="f", targets=targets)
    assert result.errors == [] and result.diff("own") == snapshot("""\
-    y: f32[4]  # input
-    add: f32[4] = aten.add.Tensor(x, y)
+    add: f32[4] = aten.add.Tensor(x, x)
""")


def test_the_graph_is_the_first_that_the_pass_does_something_with(ran):
    source = """
def own(gm: fx.GraphModule):
    for node in gm.graph.nodes:
        if node.target is torch.relu:
            node.target = torch.tanh
"""
    assert list(ran(source).changes) == ["torch", "own"]
    result = ran(PRE + "    next(n for n in g.nodes if n.target == aten.relu.default)")
    assert result.errors == [] and result.changes == {"inference": "", "own": "nothing"}
    assert result.notes == snapshot(
        {"own": "it has no effect on this graph; on the graph as written (torch), own raised StopIteration"}
    )


@pytest.mark.parametrize("on", ["inference", "core", "torch", "joint", "forward", "backward"])
def test_a_graph_can_be_named(ran, on):
    source = (
        "def own(gm: fx.GraphModule):\n    for n in gm.graph.nodes:\n        if n.op == 'output': n.meta['seen'] = 1"
    )
    result = ran(source, target="Mlp", on=on)
    assert result.changes == {on: "", "own": "nothing"}


def test_a_graph_that_is_not_there(ran):
    source = "def own(gm: fx.GraphModule):\n    pass"
    assert ran(source, on="frob").failure.message == snapshot(
        "there is no graph 'frob' to run a pass on; there are inference, core, torch, joint, forward, backward"
    )
    assert ran(source, target="whole", on="backward").failure.message == snapshot(
        "there is no backward graph: whole has nothing to differentiate"
    )
    result = ran(
        source, target="branches", on="torch", targets=TARGETS.replace("if x.sum() > 0", "if torch.is_tensor(x)")
    )
    assert result.notes == {}
