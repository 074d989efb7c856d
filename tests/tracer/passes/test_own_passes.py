"""The user's own passes, in every form that one may have."""
# ruff: noqa: E501

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot
from user_passes import run_own

BOTH = """\
-    relu: f32[4, 8] = aten.relu.default(x)
+    relu: f32[4, 8] = aten.gelu.default(x)
"""
IN_PLACE = """
def own(gm: fx.GraphModule):
    for node in gm.graph.nodes:
        if node.target == aten.relu.default:
            node.target = aten.gelu.default
    ANSWER
"""


@pytest.fixture
def ran(warm_torch: None, tmp_path: Path):
    def do(source: str, name: str = "own", target: str = "scaled", **options):
        return run_own(tmp_path, source, name, target, **options)

    return do


@pytest.mark.parametrize(
    "answer",
    [
        "return None",
        "return gm",
        "return gm.graph",
        "return True",
        "return gm, True",
        "return PassResult(gm, True)",
        "return fx.GraphModule(gm, gm.graph)",
        "import copy; return copy.deepcopy(gm)",
        "new = fx.Graph(); new.output(new.graph_copy(gm.graph, {})); return new",
    ],
)
def test_a_function_may_answer_in_many_ways(ran, answer):
    result = ran(IN_PLACE.replace("ANSWER", answer))
    assert result.errors == [] and result.changes == {"inference": "", "own": "~1"}
    assert result.diff("own") == BOTH


@pytest.mark.parametrize(("answer", "what"), [("'x'", "str"), ("[gm]", "list"), ("fx.Node", "type"), ("3.5", "float")])
def test_what_is_no_answer_is_said_at_the_pass(ran, answer, what):
    result = ran(IN_PLACE.replace("ANSWER", f"return {answer}"))
    assert result.errors == [
        f"own returns a {what}; a pass must return a GraphModule, a Graph, a PassResult or None @ def own(gm: fx.GraphModule):"
    ]


def test_a_generator_is_no_answer(ran):
    assert ran("def own(gm: fx.GraphModule):\n    yield gm").errors[0].startswith("own returns a generator;")


TRANSFORMERS = """
class OneToOne(fx.Transformer):
    def call_function(self, target, args, kwargs):
        if target == aten.add.Tensor:
            target = aten.sub.Tensor
        return super().call_function(target, args, kwargs)


class OneToMany(fx.Transformer):
    def call_function(self, target, args, kwargs):
        if target != aten.sigmoid.default:
            return super().call_function(target, args, kwargs)
        call = super().call_function
        power = call(aten.exp.default, (call(aten.neg.default, args, {}),), {})
        return call(aten.reciprocal.default, (call(aten.add.Tensor, (power, 1), {}),), {})


class Removes(fx.Transformer):
    def call_function(self, target, args, kwargs):
        return args[0] if target == aten.mul.Tensor else super().call_function(target, args, kwargs)


class Before(fx.Transformer):
    def placeholder(self, target, args, kwargs):
        return super().call_function(aten.neg.default, (super().placeholder(target, args, kwargs),), {})


class Nothing(fx.Transformer):
    pass
"""


def test_transformers(ran):
    assert ran(TRANSFORMERS, "OneToOne").diff("OneToOne") == snapshot("""\
-    y: f32[4, 8] = aten.add.Tensor(relu, 1.0)
+    y: f32[4, 8] = aten.sub.Tensor(relu, 1.0)
""")
    assert ran(TRANSFORMERS, "OneToMany").diff("OneToMany") == snapshot("""\
+    neg_default: f32[4, 8] = aten.neg.default(mul)
+    exp_default: f32[4, 8] = aten.exp.default(neg_default)
+    add_tensor_1: f32[4, 8] = aten.add.Tensor(exp_default, 1)
-    sigmoid: f32[4, 8] = aten.sigmoid.default(mul)
+    sigmoid: f32[4, 8] = aten.reciprocal.default(add_tensor_1)
""")
    assert ran(TRANSFORMERS, "Removes").diff("Removes") == snapshot("""\
-    mul: f32[4, 8] = aten.mul.Tensor(y, 0.5)
-    sigmoid: f32[4, 8] = aten.sigmoid.default(mul)
+    sigmoid: f32[4, 8] = aten.sigmoid.default(y)
""")
    assert ran(TRANSFORMERS, "Before").diff("Before") == snapshot("""\
+    neg_default: f32[4, 8] = aten.neg.default(x)
-    relu: f32[4, 8] = aten.relu.default(x)
+    relu: f32[4, 8] = aten.relu.default(neg_default)
""")
    assert ran(TRANSFORMERS, "Nothing").changes == {"inference": "", "Nothing": "nothing"}


def test_only_what_a_pass_changes_differs_in_a_module_with_many_layers(ran):
    """Nothing is renumbered: names follow through a copy."""
    result = ran(TRANSFORMERS, "OneToOne", "Mlp")
    assert result.changes["OneToOne"] == "~1"
    result = ran("def own(gm: fx.GraphModule):\n    import copy\n    return copy.deepcopy(gm)", target="Mlp")
    assert result.changes["own"] == "nothing"


def test_a_pass_as_a_class_and_as_an_object(ran):
    source = """
class Own(PassBase):
    def __init__(self, to=aten.gelu.default):
        self.to = to

    def call(self, module):
        for node in module.graph.nodes:
            if node.target == aten.relu.default:
                node.target = self.to
        return PassResult(module, True)


made = Own(aten.tanh.default)
"""
    assert ran(source, "Own").diff("Own") == BOTH
    assert "+    relu: f32[4, 8] = aten.tanh.default(x)" in ran(source, "made").diff("made")


def test_a_constructor_that_needs_more_says_what_to_do(ran):
    source = """
class Own(PassBase):
    def __init__(self, table):
        self.table = table


class Copies(fx.Transformer):
    def __init__(self, module, table):
        super().__init__(module)
"""
    assert ran(source, "Own").errors == snapshot(
        [
            "the constructor of Own takes arguments (missing a required argument: 'table'): add a default, or write `own = Own(…)` and run that @ class Own(PassBase):"
        ]
    )
    assert ran(source, "Copies").errors == snapshot(
        [
            "the constructor of Copies takes more arguments than the graph module (missing a required argument: 'table'): add a default @ class Copies(fx.Transformer):"
        ]
    )


REWRITES = """
def sum_pattern(x, w, b):
    return aten.add.Tensor(aten.mm.default(x, w), b)


def sum_replacement(x, w, b):
    return aten.addmm.default(b, x, w)


def before_relu(match, graph, pattern):
    return any(u.target == aten.relu.default for n in match.returning_nodes for u in n.users)


def halved(x):
    return aten.mul.Tensor(x, 0.5)


def third(x):
    return aten.mul.Tensor(x, 0.3)


def doubled(x):
    return aten.div.Tensor(x, 2.0)


def fewer(x, y):
    return aten.div.Tensor(x, y)


some = (sum_pattern, sum_replacement, [before_relu])
one = (sum_pattern, sum_replacement, before_relu)
literal = (halved, doubled)
none = (third, doubled)
graphs = (fx.symbolic_trace(halved), fx.symbolic_trace(doubled))
"""


def test_rewriting(ran):
    result = ran(REWRITES, "sum_pattern", "biased")
    assert result.changes == snapshot({"inference": "", "sum_pattern:matches": "", "sum_pattern": "−2 ~2"})
    assert result.diff("sum_pattern") == snapshot("""\
-    mm: f32[4, 6] = aten.mm.default(x, w)  # match 1
-    add: f32[4, 6] = aten.add.Tensor(mm, b)  # match 1
+    add: f32[4, 6] = aten.addmm.default(b, x, w)
-    mm_1: f32[4, 6] = aten.mm.default(x, w)  # match 2
-    add_1: f32[4, 6] = aten.add.Tensor(mm_1, b)  # match 2
+    add_1: f32[4, 6] = aten.addmm.default(b, x, w)
""")
    assert result.hints == snapshot(
        [
            "match 1 of sum_pattern: mm, add @ h = torch.relu(x @ w + b)",
            "match 2 of sum_pattern: mm_1, add_1 @ g = torch.tanh(x @ w + b)",
        ]
    )


@pytest.mark.parametrize("name", ["some", "one"])
def test_a_filter_lets_some_matches_through(ran, name):
    result = ran(REWRITES, name, "biased")
    assert result.page(f"{name}:matches") == snapshot("""\
# match 1
    mm = aten.mm.default(x, w)
    add = aten.add.Tensor(mm, b)

# near misses
    add_1 = aten.add.Tensor(mm_1, b)
        # the filter before_relu rejects the match (2 of 2 nodes fit)
""")
    assert result.diff(name).count("addmm") == 1


def test_a_literal_of_a_pattern_is_compared(ran):
    assert ran(REWRITES, "literal").diff("literal") == snapshot("""\
-    mul: f32[4, 8] = aten.mul.Tensor(y, 0.5)  # match 1
+    mul: f32[4, 8] = aten.div.Tensor(y, 2.0)
""")
    result = ran(REWRITES, "none")
    assert result.changes == {"inference": "", "none:matches": "", "none": "nothing"}
    assert result.page("none:matches") == snapshot("""\
# there is no match

# near misses
    mul = aten.mul.Tensor(y, 0.5)
        # the pattern has 0.3 but the graph has 0.5 (0 of 1 nodes fit)
""")


def test_overlapping_matches_are_rewritten_once(ran):
    source = """
def twice_pattern(x):
    return aten.relu.default(aten.relu.default(x))

def twice_replacement(x):
    return aten.relu.default(x)
"""
    targets = "import torch\n\n# fx: x=f32[4]\ndef f(x):\n    return x.relu().relu().relu()\n"
    result = ran(source, "twice_pattern", "f", targets=targets)
    assert result.page("twice_pattern:matches") == snapshot("""\
# match 1
    relu = aten.relu.default(x)
    relu_1 = aten.relu.default(relu)

# near misses
    relu_2 = aten.relu.default(relu_1)
        # relu_1 = aten.relu.default(relu): it is already in another match (2 of 2 nodes fit)
""")
    assert result.changes["twice_pattern"] == snapshot("−1 ~1")


def test_a_replacement_with_other_inputs_is_refused(ran):
    source = REWRITES + "\nwrong_pattern, wrong_replacement = halved, fewer\n"
    source = source.replace("def halved", "def wrong_pattern(x):\n    return halved(x)\n\n\ndef halved")
    source = source.replace("def fewer", "def wrong_replacement(x, y):\n    return fewer(x, y)\n\n\ndef fewer")
    assert ran(source.rpartition("\nwrong_pattern")[0], "wrong_pattern").errors == snapshot(
        [
            "wrong_pattern takes 1 inputs and its replacement 2; a replacement must take the inputs of its pattern, in the same order @ def wrong_pattern(x):"
        ]
    )


MANAGERS = """
def one(gm):
    for node in gm.graph.nodes:
        if node.target == aten.relu.default:
            node.target = aten.gelu.default


def two(gm):
    raise ValueError("two is not ready")


def three(gm):
    for node in gm.graph.nodes:
        if node.target == aten.sigmoid.default:
            node.target = aten.tanh.default


def breaks(gm):
    relu, add = [n for n in gm.graph.nodes if n.op == "call_function"][:2]
    relu.args = (add,)


def no_tanh(module):
    for node in module.graph.nodes:
        assert node.target != aten.tanh.default, "no tanh here"


def no_relu(module):
    for node in module.graph.nodes:
        assert node.target != aten.relu.default, "no relu here"


a, b, c, d = map(pass_result_wrapper, (one, two, three, breaks))
ordered = PassManager([a, c], constraints=[this_before_that_pass_constraint(c, a)])
sorted_ones = PassManager([a, c], constraints=[lambda x, y: x is c or y is a])
steps = PassManager([a, c], steps=2)
raising = PassManager([a, b, c])
breaking = PassManager([a, d, c])
checked = PassManager([a, c])
checked.add_checks(no_tanh)
early = PassManager([a])
early.add_checks(no_relu)
unwrapped = PassManager([one])
empty = PassManager([])
"""


def test_a_manager_shows_each_of_its_passes(ran):
    result = ran(MANAGERS, "steps")
    assert result.errors == [] and result.changes == snapshot(
        {"inference": "", "steps:one": "~1", "steps:three": "~1", "steps:one~2": "nothing", "steps:three~2": "nothing"}
    )
    assert result.diff("steps:three") == snapshot("""\
-    sigmoid: f32[4, 8] = aten.sigmoid.default(mul)
+    sigmoid: f32[4, 8] = aten.tanh.default(mul)
""")
    assert ran(MANAGERS, "empty").changes == {"inference": ""}


def test_constraints_order_the_passes(ran):
    assert list(ran(MANAGERS, "ordered").changes) == snapshot(["inference", "ordered:three", "ordered:one"])


def test_what_raises_in_the_middle_keeps_the_stages_before(ran):
    result = ran(MANAGERS, "raising")
    assert result.changes == snapshot({"inference": "", "raising:one": "~1", "raising:two:error": ""})
    assert result.errors == ['two raised ValueError: two is not ready @ raise ValueError("two is not ready")']


def test_a_graph_that_is_broken_in_the_middle_is_said_at_the_pass_that_broke_it(ran):
    result = ran(MANAGERS, "breaking")
    assert list(result.changes) == ["inference", "breaking:one", "breaking:breaks"]
    assert result.errors == snapshot(
        [
            "breaks leaves a broken graph behind: Argument 'add' of Node 'relu' was used before it has been defined! Please check that Nodes in the graph are topologically ordered (add is y) @ def breaks(gm):"
        ]
    )


def test_a_check_that_fails_says_after_which_pass(ran):
    result = ran(MANAGERS, "checked")
    assert list(result.changes) == snapshot(["inference", "checked:one", "checked:three", "checked:check"])
    assert result.errors == snapshot(
        [
            'after three, the check of pass manager checked fails: AssertionError: no tanh here @ assert node.target != aten.tanh.default, "no tanh here"'
        ]
    )
    assert ran(MANAGERS, "early").errors == snapshot(
        [
            'before the first pass, the check of pass manager early fails: AssertionError: no relu here @ assert node.target != aten.relu.default, "no relu here"'
        ]
    )


def test_what_fails_has_its_stage_also_where_the_passes_before_are_compared(ran):
    result = ran(MANAGERS, "checked", check=True)
    assert "another function" in result.notes["checked:three"] and "no tanh here" in result.notes["checked:check"]
    assert "two is not ready" in ran(MANAGERS, "raising", check=True).notes["raising:two:error"]
    assert list(ran(MANAGERS, "breaking", check=True).changes)[2:] == ["breaking:breaks"]


def test_a_pass_of_a_manager_answers_with_a_result(ran):
    assert ran(MANAGERS, "unwrapped").errors == snapshot(
        [
            "unwrapped raised TypeError: The result of the pass one should be type PassResult.Please wrap it with pass_result_wrapper() @ unwrapped = PassManager([one])"
        ]
    )
