"""Graphs that people build by hand: the graph, its table, its code and its TorchScript, and what is wrong with it."""

import pytest
from inline_snapshot import snapshot
from user_passes import run_own
from works import traced_for

PRELUDE = "import operator\nimport torch\nfrom torch import fx, nn\n"

SIX_KINDS = """
class Root(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.s = nn.Parameter(torch.ones(3))

# fx: x=f32[2, 4]
def build() -> fx.GraphModule:
    g = fx.Graph()
    x = g.placeholder("x")
    s = g.get_attr("s")
    h = g.call_module("fc", (x,))
    m = g.call_function(torch.mul, (h, s))
    t = g.call_method("sum", (m,), {"dim": -1})
    g.output(t)
    return fx.GraphModule(Root(), g)
"""


@pytest.fixture
def build(warm_torch, tmp_path):
    """What is known of a graph that a source text builds; with `work`, its TorchScript as well."""
    return lambda source, name="build", work="": traced_for(tmp_path, PRELUDE + source, name, work)


def test_all_six_kinds_of_nodes_in_the_graph_its_table_and_its_code(build):
    traced = build(SIX_KINDS)
    nodes = traced.stage("graph").nodes
    assert [(n.op, n.name, n.spec, traced.at(n.span)) for n in nodes] == snapshot(
        [
            ("placeholder", "x", "f32[2, 4]", 'g.placeholder("x")'),
            ("get_attr", "s", "f32[3]", 'g.get_attr("s")'),
            ("call_module", "fc", "f32[2, 3]", 'g.call_module("fc", (x,))'),
            ("call_function", "mul", "f32[2, 3]", "g.call_function(torch.mul, (h, s))"),
            ("call_method", "sum_1", "f32[2]", 'g.call_method("sum", (m,), {"dim": -1})'),
            ("output", "output", "f32[2]", "g.output(t)"),
        ]
    )
    assert traced.stage("table").text == snapshot("""\
# opcode         name    target     args   kwargs  users   spec       line
# placeholder    x       x                         fc      f32[2, 4]  14: x = g.placeholder("x")
# get_attr       s       s                         mul     f32[3]     15: s = g.get_attr("s")
# call_module    fc      fc         x              mul     f32[2, 3]  16: h = g.call_module("fc", (x,))
# call_function  mul     torch.mul  fc, s          sum_1   f32[2, 3]  17: m = g.call_function(torch.mul, (h, s))
# call_method    sum_1   sum        mul    dim=-1  output  f32[2]     18: t = g.call_method("sum", (m,), {"dim": -1})
# output         output  output     sum_1                  f32[2]     19: g.output(t)
""")
    assert traced.stage("code").text == snapshot("""\
def forward(self, x):
    s = self.s
    fc = self.fc(x);  x = None
    mul = torch.mul(fc, s);  fc = s = None
    sum_1 = mul.sum(dim = -1);  mul = None
    return sum_1
""")


def test_no_specs_where_nothing_says_what_the_inputs_are(build):
    traced = build(SIX_KINDS.replace("# fx: x=f32[2, 4]\n", ""))
    assert {n.spec for n in traced.stage("graph").nodes} == {None}


def test_example_values_of_the_placeholders_are_propagated(build):
    traced = build("""
def build():
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.ones(2, 3)
    graph.output(graph.call_function(operator.neg, (x,)))
    return graph
""")
    assert traced.graph("graph") == snapshot("""\
x: f32[2, 3] = placeholder
neg: f32[2, 3] = operator.neg(x)
return neg\
""")


def test_a_proxy_built_graph_and_a_name_that_holds_one(build):
    source = """
def body(x, w):
    h = x @ w
    return torch.relu(h)

def build():
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    x = fx.Proxy(graph.placeholder("x"), tracer)
    y = torch.relu(x) + 1
    graph.output(y.node)
    return graph

held = fx.symbolic_trace(body)
"""
    proxied, held = build(source), build(source, "held")
    assert proxied.graph("graph") == snapshot("""\
x: None = placeholder
relu: None = torch.relu(x)
add: None = operator.add(relu, 1)
return add\
""")
    assert [proxied.at(n.span) for n in proxied.stage("graph").nodes] == snapshot(
        ['graph.placeholder("x")', "torch.relu(x)", "torch.relu(x) + 1", "graph.output(y.node)"]
    )
    assert [[held.at(s) for s in n.spans] for n in held.stage("graph").nodes] == snapshot(
        [
            ["fx.symbolic_trace(body)"],
            ["fx.symbolic_trace(body)"],
            ["x @ w", "fx.symbolic_trace(body)"],
            ["torch.relu(h)", "fx.symbolic_trace(body)"],
            ["fx.symbolic_trace(body)"],
        ]
    )


def test_a_graph_that_is_built_at_the_top_level(build):
    traced = build(
        """
graph = fx.Graph()
x = graph.placeholder("x")
y = graph.call_function(torch.relu, (x,))
graph.output(y)
graph.lint()
module = fx.GraphModule(nn.Module(), graph)
""",
        "module",
    )
    assert not traced.trace.remarks
    assert [traced.at(n.span) for n in traced.stage("graph").nodes] == snapshot(
        ['graph.placeholder("x")', "graph.call_function(torch.relu, (x,))", "graph.output(y)"]
    )


def test_make_fx_and_export(build):
    source = """
from torch.fx.experimental.proxy_tensor import make_fx

def body(x):
    return torch.relu(x) + 1

def made():
    return make_fx(body)(torch.ones(3))

def exported():
    return torch.export.export(nn.Linear(2, 3), (torch.ones(1, 2),))
"""
    made, exported = build(source, "made"), build(source, "exported")
    assert made.graph("graph") == snapshot("""\
x_1: f32[3] = placeholder
relu: f32[3] = aten.relu.default(x_1)
add: f32[3] = aten.add.Tensor(relu, 1)
return add\
""")
    assert [made.at(n.span) for n in made.stage("graph").nodes if n.op == "call_function"] == snapshot(
        ["torch.relu(x)", "torch.relu(x) + 1"]
    )
    assert exported.graph("graph") == snapshot("""\
p_weight: f32[3, 2] = placeholder
p_bias: f32[3] = placeholder
input: f32[1, 2] = placeholder
linear: f32[1, 3] = aten.linear.default(input, p_weight, p_bias)
return (linear,)\
""")


def test_what_lint_says_stands_at_the_node_that_it_says_it_of(build):
    traced = build("""
def build():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    with graph.inserting_before(y):
        z = graph.call_function(torch.neg, (y,))
    graph.output(z)
    return fx.GraphModule(nn.Module(), graph)
""")
    (remark,) = traced.trace.remarks
    assert (remark.severity, remark.message, traced.at(remark.span)) == snapshot(
        (
            "error",
            "the graph is broken: Argument 'relu' of Node 'neg' was used before it has been defined",
            "graph.call_function(torch.neg, (y,))",
        )
    )
    assert traced.trace.info("graph").nodes == 4


def test_an_exception_stands_at_the_expression_that_made_the_node(build):
    traced = build("""
def body(x):
    if x.sum() > 0:
        return x
    return -x

def build():
    return fx.symbolic_trace(body)
""")
    assert (traced.failure.kind, traced.failure.severity, traced.failure.message) == snapshot(
        ("error", "error", "symbolically traced variables cannot be used as inputs to control flow")
    )
    assert traced.at(traced.failure.span) == snapshot("x.sum() > 0")


def test_a_node_that_cannot_be_computed(build):
    traced = build(SIX_KINDS.replace("f32[2, 4]", "f32[2, 5]"))
    (remark,) = traced.trace.remarks
    assert (remark.message, traced.at(remark.span)) == snapshot(
        (
            "fc cannot be computed: matrices of 2×5 and 4×3 cannot be multiplied: the inner sizes 5 and 4 differ",
            'g.call_module("fc", (x,))',
        )
    )


def test_effects_are_blocked_while_a_graph_is_built(build):
    traced = build("""
from pathlib import Path

def build():
    graph = fx.Graph()
    Path("/graph.txt").write_text(str(graph))
    return graph
""")
    assert (traced.failure.kind, traced.at(traced.failure.span)) == (
        "effect",
        'Path("/graph.txt").write_text(str(graph))',
    )


def test_what_is_no_graph_after_all(build):
    assert build("def build() -> fx.Graph:\n    return 3\n").failure.message == snapshot(
        "build returns int, not a Graph or GraphModule"
    )


def test_torchscript(build):
    traced = build(SIX_KINDS, work="torchscript")
    assert traced.stage("torchscript").text == snapshot("""\
def forward(self,
    x: Tensor) -> Tensor:
  s = self.s
  fc = self.fc
  fc0 = (fc).forward(x, )
  mul = torch.mul(fc0, s)
  return torch.sum(mul, [-1])


# graph(%self : __torch__.torch.fx.graph_module.GraphModule,
#       %x.1 : Tensor):
#   %19 : NoneType = prim::Constant()
#   %18 : bool = prim::Constant[value=0]()
#   %16 : int = prim::Constant[value=-1]()
#   %s.1 : Tensor = prim::GetAttr[name="s"](%self)
#   %fc.1 : __torch__.torch.nn.modules.linear.Linear = prim::GetAttr[name="fc"](%self)
#   %fc.3 : Tensor = prim::CallMethod[name="forward"](%fc.1, %x.1)
#   %mul.1 : Tensor = aten::mul(%fc.3, %s.1)
#   %17 : int[] = prim::ListConstruct(%16)
#   %sum_1.1 : Tensor = aten::sum(%mul.1, %17, %18, %19)
#   return (%sum_1.1)
""")


def test_torchscript_of_a_lambda(build):
    traced = build("held = fx.symbolic_trace(lambda x: x + 1)\n", "held", "torchscript")
    assert traced.stage("torchscript").text == snapshot("""\
def forward(self,
    x: Tensor) -> Tensor:
  return torch.add(x, 1)


# graph(%self : __torch__.torch.fx.graph_module.lambda,
#       %x.1 : Tensor):
#   %3 : int = prim::Constant[value=1]()
#   %add.1 : Tensor = aten::add(%x.1, %3, %3)
#   return (%add.1)
""")


def test_why_a_graph_does_not_script(build):
    traced = build(
        """
def strange(x):
    return {**x}

fx.wrap("strange")

def body(x):
    y = strange(x)
    return y

def build():
    return fx.symbolic_trace(body)
""",
        work="torchscript",
    )
    assert traced.trace.info("torchscript").note == snapshot(
        "torch.jit.script cannot script it: Dict expansion (e.g. `{**dict}`) is not supported (at `return {**x}`)"
    )
    (remark,) = traced.trace.remarks
    assert (remark.message, traced.at(remark.span)) == snapshot(
        ("TorchScript: Dict expansion (e.g. `{**dict}`) is not supported", "return {**x}")
    )


def test_an_operation_that_does_not_script(build):
    traced = build(
        """
def body(x):
    y = x.flip("all")
    return y

held = fx.symbolic_trace(body)
""",
        "held",
        work="torchscript",
    )
    (remark,) = traced.trace.remarks
    assert remark.message.startswith("TorchScript: Arguments for call are not valid.")
    assert traced.at(remark.span) == 'x.flip("all")'


def test_torchscript_of_a_function(build):
    source = "\n# fx: x=f32[4]\ndef f(x):\n    return torch.relu(x) + 1\n"
    traced = build(source, "f", "torchscript")
    assert [s.name for s in traced.trace.stages] == ["torch", "torchscript"]
    assert traced.stage("torchscript").text == snapshot("""\
def forward(self,
    x: Tensor) -> Tensor:
  relu = torch.relu(x)
  return torch.add(relu, 1)


# graph(%self : __torch__.torch.fx.graph_module.GraphModule,
#       %x.1 : Tensor):
#   %6 : int = prim::Constant[value=1]()
#   %relu.1 : Tensor = aten::relu(%x.1)
#   %add.1 : Tensor = aten::add(%relu.1, %6, %6)
#   return (%add.1)
""")


RELUS = """
def gelu(gm: fx.GraphModule) -> fx.GraphModule:
    for node in gm.graph.find_nodes(op="call_function", target=torch.relu):
        with gm.graph.inserting_after(node):
            new = gm.graph.call_function(nn.functional.gelu, node.args)
        node.replace_all_uses_with(new)
        gm.graph.erase_node(node)
    return gm


def transposed(gm: fx.GraphModule) -> None:
    for node in gm.graph.find_nodes(op="call_module", target="fc"):
        with gm.graph.inserting_before(node):
            node.args = (gm.graph.call_method("t", node.args),)


def relu_pattern(x):
    return torch.relu(x)


def relu_replacement(x):
    return torch.sigmoid(x)


class Twice(fx.Transformer):
    def call_method(self, target, args, kwargs):
        return super().call_method(target, args, kwargs) * 2


taken = SubgraphMatcher(fx.symbolic_trace(relu_pattern).graph)


class Modules(OperatorSupport):
    def is_node_supported(self, submodules, node):
        return node.op == "call_module"
"""
BUILDERS = (
    PRELUDE
    + SIX_KINDS.replace("g.output(t)", "g.output(g.call_function(torch.relu, (t,)))")
    + (
        """

def alone() -> fx.Graph:
    g = fx.Graph()
    g.output(g.call_function(torch.relu, (g.placeholder("x"),)))
    return g


def parts() -> fx.Graph:
    g = fx.Graph()
    g.output(g.call_module("fc", (g.placeholder("x"),)))
    return g


def broken() -> fx.Graph:
    g = fx.Graph()
    g.call_function(torch.relu, (g.placeholder("x"),))
    return g
"""
    )
)


@pytest.fixture
def own(warm_torch, tmp_path):
    """What a pass makes of a graph that is built by hand."""
    return lambda name, target="build", **options: run_own(tmp_path, RELUS, name, target, targets=BUILDERS, **options)


def test_passes_of_every_kind_run_on_a_graph_that_is_built(own):
    assert own("gelu").diff("gelu") == snapshot("""\
-    relu: f32[2] = torch.relu(sum_1)
+    relu: f32[2] = torch._C._nn.gelu(sum_1)
""")
    assert own("relu_pattern").diff("relu_pattern") == snapshot("""\
-    relu: f32[2] = torch.relu(sum_1)  # match 1
+    relu: f32[2] = torch.sigmoid(sum_1)
""")
    assert own("Twice").diff("Twice") == snapshot("""\
-    sum_1: f32[2] = mul.sum(dim=-1)
+    sum_1_1: f32[2] = mul.sum(dim=-1)
+    sum_1: f32[2] = operator.mul(sum_1_1, 2)
""")
    assert own("Modules").diff("Modules") == snapshot("""\
-    fc: f32[2, 3] = self.fc(x)  # partition 1
+    fc: f32[2, 3] = self.fused_0(x)
""")
    assert own("taken").page("taken:matches") == snapshot("""\
# match 1
    relu = torch.relu(sum_1)
""")


def test_a_pass_that_leaves_what_cannot_be_run(own):
    ran = own("transposed")
    (error,) = ran.errors
    assert error.startswith("the graph that transposed leaves behind cannot be run: fc = fc(…): matrices of 4×2 and")
    assert error.endswith("@ def transposed(gm: fx.GraphModule) -> None:")
    assert ran.changes == snapshot({"graph": "", "transposed": "+1 ~1"})


def test_a_graph_whose_inputs_nobody_knows(own):
    ran = own("gelu", "alone")
    assert ran.notes == snapshot({"graph": "the value of x is unknown, so graphs are not run to find their shapes"})
    assert ran.diff("gelu") == snapshot("""\
-    relu = torch.relu(x)
+    relu = torch._C._nn.gelu(x)
""")
    assert ran.errors == []


@pytest.mark.parametrize("target", ["parts", "broken"])
def test_graphs_that_no_pass_is_run_on(own, target: str):
    why = {
        "parts": "it is a Graph without the module whose attributes it uses: a pass takes a GraphModule",
        "broken": "a pass cannot run on a broken graph",
    }
    assert own("gelu", target).notes["gelu"] == why[target]


def test_a_graph_that_is_built_has_no_other_graphs(own):
    assert own("gelu", on="graph").changes == own("gelu").changes
    assert own("gelu", on="joint").failure.message == snapshot(
        "there is no graph 'joint' to run a pass on: build builds one itself"
    )


def test_is_a_graph_that_is_built_still_the_same_function(own):
    assert own("gelu", check=True).notes == snapshot({"gelu": "it is another function: output differs by up to 0.15"})
