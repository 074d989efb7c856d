"""What a matcher and a partitioner find in a graph, and what they almost find, with the reason why not."""
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot
from user_passes import run_own

TARGET = """\
import torch


# fx: x=f32[4, 8], y=f32[4, 8]
def f(x, y):
    plain = torch.relu(x + y)
    product = torch.relu(x * y)
    scaled = torch.add(x, y, alpha=2).relu()
    shared = x + y
    both = shared.relu() + shared
    same = (x + x).relu()
    number = (x + 3).relu()
    return plain, product, scaled, both, same, number, torch.sum(x * 2.0, 1), torch.sum(y * 3.0, 1)
"""


@pytest.fixture
def page(warm_torch: None, tmp_path: Path):
    def do(pattern: str, options: str = "", on: str = "inference", target: str = TARGET) -> str:
        source = f"def pattern{pattern}\n\n\nown = SubgraphMatcher(fx.symbolic_trace(pattern).graph{options})\n"
        ran = run_own(tmp_path, source, "own", "f", on=on, targets=target)
        assert ran.errors == []
        return ran.page("own:matches")

    return do


def test_every_place_that_almost_matches_says_what_is_different(page):
    assert page("(a, b):\n    return aten.relu.default(aten.add.Tensor(a, b))") == snapshot("""\
# match 1
    add = aten.add.Tensor(x, y)
    plain = aten.relu.default(add)
# match 2
    add_5 = aten.add.Tensor(x, 3)
    number = aten.relu.default(add_5)

# near misses
    product = aten.relu.default(mul)
        # mul = aten.mul.Tensor(x, y): the pattern has aten.add.Tensor here, but the graph has aten.mul.Tensor (1 of 2 nodes fit)
    scaled = aten.relu.default(add_1)
        # add_1 = aten.add.Tensor(x, y, alpha=2): the pattern has 1 but the graph has 2 (1 of 2 nodes fit)
    relu_3 = aten.relu.default(shared)
        # shared = aten.add.Tensor(x, y): its result is also used by both, which is outside of the pattern (2 of 2 nodes fit)
    same = aten.relu.default(add_4)
        # add_4 = aten.add.Tensor(x, x): the pattern has two values, its a and its b, but the graph has x twice (1 of 2 nodes fit)
""")


def test_one_value_where_the_graph_has_two(page):
    assert page("(a):\n    return aten.relu.default(aten.add.Tensor(a, a))") == snapshot("""\
# match 1
    add_4 = aten.add.Tensor(x, x)
    same = aten.relu.default(add_4)

# near misses
    plain = aten.relu.default(add)
        # add = aten.add.Tensor(x, y): the pattern has one value, its a, but the graph has x and y (1 of 2 nodes fit)
    product = aten.relu.default(mul)
        # mul = aten.mul.Tensor(x, y): the pattern has aten.add.Tensor here, but the graph has aten.mul.Tensor (1 of 2 nodes fit)
    scaled = aten.relu.default(add_1)
        # add_1 = aten.add.Tensor(x, y, alpha=2): the pattern has one value, its a, but the graph has x and y (1 of 2 nodes fit)
    relu_3 = aten.relu.default(shared)
        # shared = aten.add.Tensor(x, y): the pattern has one value, its a, but the graph has x and y (1 of 2 nodes fit)
    number = aten.relu.default(add_5)
        # add_5 = aten.add.Tensor(x, 3): the pattern has a value, its a, but the graph has 3 (1 of 2 nodes fit)
""")


def test_literals_are_compared_unless_they_are_ignored(page):
    pattern = "(a):\n    return aten.sum.dim_IntList(aten.mul.Tensor(a, 2.0), [1])"
    assert page(pattern) == snapshot("""\
# match 1
    mul_1 = aten.mul.Tensor(x, 2.0)
    sum_1 = aten.sum.dim_IntList(mul_1, [1])

# near misses
    sum_2 = aten.sum.dim_IntList(mul_2, [1])
        # mul_2 = aten.mul.Tensor(y, 3.0): the pattern has 2.0 but the graph has 3.0 (1 of 2 nodes fit)
""")
    assert page(pattern, ", ignore_literals=True").count("# match") == 2


def test_a_packet_is_no_overload(page):
    text = page("(a, b):\n    return aten.relu.default(aten.mul(a, b))")
    assert "the pattern has aten.mul, which means all overloads: write torch.ops.aten.mul.Tensor" in text


def test_another_overload(page):
    text = page("(a):\n    return aten.add.Scalar(a, 3)")
    assert (
        "add_5 = aten.add.Tensor(x, 3)\n        # the pattern has aten.add.Scalar here, but the graph has aten.add"
        in text
    )


def test_a_number_of_arguments(page):
    target = "import torch\n\n# fx: x=f32[4, 8]\ndef f(x):\n    return torch.relu(x.sum(1))\n"
    assert page("(a):\n    return a.sum().relu()", on="torch", target=target) == snapshot("""\
# there is no match

# near misses
    relu = torch.relu(sum_1)
        # the pattern has the method relu here, but the graph has the function torch.relu (0 of 2 nodes fit)
""")
    assert page("(a):\n    return torch.relu(a.sum())", on="torch", target=target) == snapshot("""\
# there is no match

# near misses
    relu = torch.relu(sum_1)
        # sum_1 = sum(x, 1): the pattern passes 1 argument to it, but the graph 2 arguments (1 of 2 nodes fit)
""")


def test_a_method_is_no_function(page):
    assert "the pattern has the function torch.relu here, but the graph has the method relu" in page(
        "(a, b):\n    return torch.relu(a + b)", on="torch"
    )


def test_what_is_nowhere(page):
    assert page("(a):\n    return aten.exp.default(a)") == snapshot(
        "# there is no match: no node calls aten.exp.default, the last operation of the pattern\n"
    )


def test_an_input_where_the_pattern_goes_on(page):
    text = page("(a, b):\n    return aten.mul.Tensor(aten.exp.default(a), b)")
    assert "        # x: the pattern has aten.exp.default here, but the graph has an input (1 of 2 nodes fit)\n" in text


def test_an_attribute_where_the_pattern_goes_on(page):
    target = "import torch\n\nONES = torch.ones(4)\n\n\n# fx: x=f32[4]\ndef f(x):\n    return torch.mul(ONES, x)\n"
    text = page("(a, b):\n    return torch.mul(torch.exp(a), b)", on="torch", target=target)
    assert "        # tensor_constant0 = self._tensor_constant0: the pattern has the function torch.exp here" in text


def test_a_pattern_with_two_results(page):
    text = page("(a, b):\n    s = aten.add.Tensor(a, b)\n    return aten.relu.default(s), s")
    assert "shared = aten.add.Tensor(x, y)" in text.partition("# near misses")[0]


def test_a_long_page_ends(page):
    target = (
        "import torch\n\n# fx: x=f32[4]\ndef f(x):\n    for i in range(60):\n        x = (x * i).relu()\n    return x\n"
    )
    text = page("(a):\n    return aten.relu.default(aten.add.Tensor(a, 1))", target=target)
    assert text.count("the pattern has aten.add.Tensor here") == 40
    assert text.endswith("    # … and 20 more\n")


def test_nobody_is_harmed_by_watching(page):
    """A pattern that is matched in the same process again finds the same."""
    pattern = "(a, b):\n    return aten.relu.default(aten.add.Tensor(a, b))"
    assert page(pattern) == page(pattern)


def marks(ran) -> dict[str, str]:
    return {node.name: node.comment for node in ran.traced.stage("inference").nodes if node.comment}


def test_matches_and_near_misses_are_marked_in_the_graph(warm_torch: None, tmp_path: Path):
    source = """
    def pattern(a, b):
        return aten.relu.default(aten.add.Tensor(a, b))

    own = SubgraphMatcher(fx.symbolic_trace(pattern).graph)
    """
    assert marks(run_own(tmp_path, source, "own", "f", targets=TARGET)) == snapshot(
        {
            "add": "match 1",
            "plain": "match 1",
            "mul": "near miss: the pattern has aten.add.Tensor here, but the graph has aten.mul.Tensor",
            "add_1": "near miss: the pattern has 1 but the graph has 2",
            "shared": "near miss: its result is also used by both, which is outside of the pattern",
            "add_4": "near miss: the pattern has two values, its a and its b, but the graph has x twice",
            "add_5": "match 2",
            "number": "match 2",
        }
    )


def test_what_is_rewritten_is_marked_in_the_graph_before(warm_torch: None, tmp_path: Path):
    source = """
    def pattern(a, b):
        return aten.mul.Tensor(a, b)

    def replacement(a, b):
        return aten.div.Tensor(a, b)
    """
    ran = run_own(tmp_path, source, "pattern", "f", targets=TARGET)
    assert ran.diff("pattern") == snapshot("""\
-    mul: f32[4, 8] = aten.mul.Tensor(x, y)  # match 1
+    mul: f32[4, 8] = aten.div.Tensor(x, y)
-    mul_1: f32[4, 8] = aten.mul.Tensor(x, 2.0)  # match 2
+    mul_1: f32[4, 8] = aten.div.Tensor(x, 2.0)
-    mul_2: f32[4, 8] = aten.mul.Tensor(y, 3.0)  # match 3
+    mul_2: f32[4, 8] = aten.div.Tensor(y, 3.0)
""")


SUPPORTS = """
class Own(OperatorSupport):
    def is_node_supported(self, submodules, node):
        return node.op == "call_function" and node.target in (aten.add.Tensor, aten.relu.default)


class Some(OperatorSupport):
    def __init__(self, op):
        self.op = op

    def is_node_supported(self, submodules, node):
        return node.target == self.op


def products(submodules, node):
    return node.target == aten.mul.Tensor


made = Some(aten.mul.Tensor)
called = create_op_support(products)
chained = chain(Own(), create_op_support(lambda submodules, node: node.target != aten.relu.default))
any_of = any_chain(Own(), made)
nothing = create_op_support(lambda submodules, node: False)
everything = create_op_support(lambda submodules, node: node.op.startswith("call_"))


class Raises(OperatorSupport):
    def is_node_supported(self, submodules, node):
        return self.table[node.target]
"""
SMALL = """\
import torch


# fx: x=f32[4, 8]
def f(x):
    y = torch.relu(x + 1)
    z = y * 2
    return torch.relu(z + y)
"""


@pytest.fixture
def parts(warm_torch: None, tmp_path: Path):
    return lambda name: run_own(tmp_path, SUPPORTS, name, "f", targets=SMALL)


def test_partitions_and_what_is_not_taken(parts):
    ran = parts("Own")
    assert marks(ran) == snapshot(
        {"add": "partition 2", "y": "partition 2", "add_1": "partition 1", "relu_1": "partition 1"}
    )
    assert ran.page("Own:partitions") == snapshot("""\
# partition 1
    add_1 = aten.add.Tensor(z, y)
    relu_1 = aten.relu.default(add_1)
# partition 2
    add = aten.add.Tensor(x, 1)
    y = aten.relu.default(add)

# not taken
    z = aten.mul.Tensor(y, 2)
        # aten.mul.Tensor is not supported
""")
    assert ran.diff("Own") == snapshot("""\
-    add: f32[4, 8] = aten.add.Tensor(x, 1)  # partition 2
-    y: f32[4, 8] = aten.relu.default(add)  # partition 2
+    y: f32[4, 8] = self.fused_1(x)
-    add_1: f32[4, 8] = aten.add.Tensor(z, y)  # partition 1
-    relu_1: f32[4, 8] = aten.relu.default(add_1)  # partition 1
+    relu_1: f32[4, 8] = self.fused_0(z, y)
""")
    assert ran.hints == snapshot(
        [
            "partition 1 of Own: add_1, relu_1 @ return torch.relu(z + y)",
            "partition 2 of Own: add, y @ y = torch.relu(x + 1)",
        ]
    )


@pytest.mark.parametrize(
    ("name", "partitions", "left"),
    [("made", 1, 4), ("called", 1, 4), ("chained", 2, 3), ("any_of", 1, 0), ("everything", 1, 0)],
)
def test_supports_of_every_kind(parts, name, partitions, left):
    text = parts(name).page(f"{name}:partitions")
    assert text.count("# partition ") == partitions
    assert text.count("is not supported") == left


def test_nothing_supported(parts):
    ran = parts("nothing")
    assert ran.page("nothing:partitions").startswith("# there is no partition\n")
    assert ran.changes == {"inference": "", "nothing:partitions": "", "nothing": "nothing"}


def test_a_support_that_raises_or_needs_arguments(parts):
    assert parts("Raises").errors == snapshot(
        ["Raises raised AttributeError: 'Raises' object has no attribute 'table' @ return self.table[node.target]"]
    )
    assert parts("Some").errors == snapshot(
        [
            "the constructor of Some takes arguments (missing a required argument: 'op'): add a default, or write `some = Some(…)` and run that @ class Some(OperatorSupport):"
        ]
    )
