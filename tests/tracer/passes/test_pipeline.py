"""The stages of a target from what is written to Inductor's code, in their order, under the names of the source."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import Traced
from inline_snapshot import snapshot
from works import traced_for

from fx_lsp.model import Stage

PRELUDE = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


@pytest.fixture
def passes(warm_torch: None, tmp_path: Path):
    return lambda source, name="f", work="passes": traced_for(tmp_path, PRELUDE + source, name, work)


@pytest.fixture(scope="module")
def linear(warm_torch: None, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    return traced_for(tmp_path_factory.mktemp("linear"), PRELUDE + LINEAR, "f", "passes")


LINEAR = """
# fx: x=f32[8, 16], w=f32[16, 32], b=f32[32]
def f(x, w, b):
    h = x @ w + b
    y = F.gelu(h)
    return y.sum()
"""


def made(traced: Traced) -> list[str]:
    """The stages that something was made in, in their order."""
    return [s.name for s in traced.trace.stages if s.change is None or s.change]


def names(stage: Stage) -> list[str]:
    return [n.name for n in stage.nodes if n.op != "output"]


def texts(traced: Traced, stage: str) -> dict[str, str]:
    """The innermost source text of every operation of a stage."""
    return {n.name: traced.at(n.span) for n in traced.stage(stage).nodes if n.op.startswith("call_") and n.span}


def test_the_stages_in_their_order(linear: Traced):
    assert made(linear) == snapshot(
        [
            "torch",
            "dynamo",
            "joint",
            "forward",
            "backward",
            "decomposed",
            "forward:partition",
            "backward:partition",
            "backward:view_to_reshape",
        ]
    )
    groups = [s.name.partition(":")[0] for s in linear.trace.stages if ":" in s.name]
    assert list(dict.fromkeys(groups)) == ["pre_grad", "joint", "forward", "backward"]


def test_a_stage_says_what_made_it(linear: Traced):
    infos = linear.trace.stages
    assert {s.name: s.title for s in infos if ":" not in s.name} == snapshot(
        {
            "torch": "as written: torch.fx.symbolic_trace",
            "dynamo": "torch.compile: the graph that Dynamo captured",
            "joint": "AOTAutograd: forward and backward in one graph, functionalized",
            "forward": "AOTAutograd: min-cut partition, forward",
            "backward": "AOTAutograd: min-cut partition, backward",
            "decomposed": "AOTAutograd with Inductor's decompositions (pattern_matcher=True, "
            "joint_graph_constant_folding=True, fallback_random=False, freezing=False)",
        }
    )
    passes = {s.name: s.title for s in infos if s.name.endswith(":remove_noop_ops")}
    assert passes == snapshot(
        {
            "joint:remove_noop_ops": "joint_graph_passes: remove_noop_ops",
            "forward:remove_noop_ops": "post_grad_passes: remove_noop_ops",
            "backward:remove_noop_ops": "post_grad_passes: remove_noop_ops",
        }
    )
    assert "(activation_memory_budget=1.0, " in next(s.title for s in infos if s.name == "forward:partition")


def test_each_comes_after_one_that_there_is(linear: Traced):
    traced = linear.trace
    seen: set[str] = set()
    for info in traced.stages:
        assert not info.before or info.before in seen, info
        seen.add(info.name)
    assert {s.name: s.before for s in traced.stages if s.change is None} == snapshot(
        {
            "torch": "",
            "dynamo": "",
            "joint": "",
            "forward": "joint",
            "backward": "joint",
            "decomposed": "joint",
            "forward:partition": "decomposed",
            "backward:partition": "decomposed",
        }
    )


def test_the_variables_of_the_source_name_nodes_in_every_stage(linear: Traced):
    for stage in ("torch", "dynamo", "joint", "decomposed", "forward:partition"):
        assert {"x", "w", "b", "h", "y"} <= set(names(linear.stage(stage))), stage
    for stage in ("decomposed", "backward:partition"):
        assert {"grad_x", "grad_w", "grad_b"} <= set(names(linear.stage(stage))), stage


@pytest.mark.parametrize("stage", ["torch", "dynamo", "decomposed"])
def test_operations_come_from_their_expressions(stage: str, linear: Traced):
    found = texts(linear, stage)
    assert found["h"] == "x @ w + b"
    assert found["y"] == "F.gelu(h)"
    assert set(found.values()) == {"x @ w", "x @ w + b", "F.gelu(h)", "y.sum()"}


def test_a_pass_that_changes_nothing_has_the_graph_before_it(linear: Traced):
    idle = [s for s in linear.trace.stages if s.change is not None and not s.change]
    assert idle
    for info in idle:
        assert info.name not in linear.reply.stages
        kept = linear.trace.kept(info.name)
        assert kept in linear.reply.stages
        assert (info.nodes, info.ops) == (linear.trace.info(kept).nodes, linear.trace.info(kept).ops)


def test_a_change_counts_what_differs(passes):
    traced = passes("""
# fx: x=f32[8, 16]
def f(x):
    y = x.clone() * 1 + 0
    return y.reshape(16, 8).t().t().cos()
""")
    changes = {s.name: (s.change.added, s.change.removed, s.change.changed) for s in traced.trace.stages if s.change}
    assert changes == snapshot(
        {
            "joint:remove_noop_ops": (0, 1, 1),
            "joint:pattern_matcher": (0, 4, 3),
            "forward:view_to_reshape": (0, 0, 1),
            "backward:view_to_reshape": (0, 0, 2),
        }
    )
    for name, (added, removed, _) in changes.items():
        before = traced.trace.info(name).before
        assert len(traced.stage(name).nodes) - len(traced.stage(before).nodes) == added - removed


def test_the_layout_that_inductor_gives_what_forward_saves(passes):
    traced = passes("""
# fx: x=f32[2, 3, 8, 8], w=f32[4, 3, 3, 3]
def f(x, w):
    return F.conv2d(x, w)
""")
    assert traced.stage("backward:partition").nodes[0].spec == "f32[2, 3, 8, 8]"
    assert traced.stage("backward:layouts").nodes[0].spec == "f32[2, 3, 8, 8](192, 1, 24, 3)"


def test_sizes_that_depend_on_values_have_no_layout_to_take_over(passes):
    code = "\n# fx: x=f32[8], w=f32[4]\ndef f(x, w):\n    return x[x.nonzero()].sum() * w\n"
    traced = passes(code).trace
    assert {"forward", "backward"} <= {s.name.partition(":")[0] for s in traced.stages}
    assert not {"stopped", "backward:layouts"} & {s.name for s in traced.stages}


def test_parameters_and_buffers_of_a_module(passes):
    traced = passes(
        """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    # fx: x=f32[2, 4]
    def forward(self, x):
        return self.fc(x) * self.scale
""",
        "Block",
    )
    assert [n.target for n in traced.stage("torch").nodes if n.op in ("call_module", "get_attr")] == ["fc", "scale"]
    for stage in ("dynamo", "decomposed", "forward:partition"):
        inputs = {n.name: n.comment for n in traced.stage(stage).nodes if n.op == "placeholder"}
        inputs.pop("grad_out", None)
        assert inputs == {"fc_weight": "parameter", "fc_bias": "parameter", "scale": "buffer", "x": ""}


def test_nothing_to_differentiate(passes):
    traced = passes("""
# fx: x=f32[8, 8]
@torch.no_grad()
def f(x):
    y = x @ x
    return F.softmax(y, -1)
""")
    assert made(traced) == snapshot(["torch", "dynamo", "inference", "decomposed"])
    assert "backward" not in {s.name.partition(":")[0] for s in traced.trace.stages}
    assert names(traced.stage("decomposed"))[:2] == ["x", "y"]


BREAKS = {
    "a graph break": "torch._dynamo.graph_break()\n    return y",
    "a print": "print(y)\n    return y",
}


@pytest.mark.parametrize("code", BREAKS.values(), ids=BREAKS.keys())
def test_where_dynamo_would_break_aot_autograd_traces_the_code(code: str, passes):
    source = f"\n# fx: x=f32[4, 4]\ndef f(x):\n    y = torch.relu(x @ x)\n    {code}\n"
    traced = passes(source)
    info = traced.trace.info("dynamo")
    assert info is not None and info.nodes == 0
    assert info.note.startswith("Dynamo cannot capture it as one graph, so AOTAutograd traces the Python code: ")
    assert {"joint", "decomposed", "forward:partition", "backward:partition"} <= set(made(traced))
    assert "joint:remove_noop_ops" in {s.name for s in traced.trace.stages}
    assert "y" in names(traced.stage("decomposed"))
    assert texts(traced, "decomposed")["y"] == "torch.relu(x @ x)"


def test_code_that_symbolic_trace_cannot_follow(passes):
    source = "\n# fx: x=f32[4]\ndef f(x):\n    return x * 2 if x.sum().shape == () else x\n"
    branch = source.replace("x.sum().shape == ()", "x.shape[0] > 3")
    assert "torch.fx.symbolic_trace cannot trace it" in passes(branch).trace.info("torch").note


@pytest.mark.parametrize("table", ["core", "torch._decomp.core_aten_decompositions"])
def test_another_table_of_decompositions(table: str, passes):
    traced = passes(LINEAR, work=f"passes&table={table}")
    assert made(traced) == ["joint", "forward", "backward", "decomposed", "forward:partition", "backward:partition"]
    targets = {n.target for n in traced.stage("decomposed").nodes}
    assert "aten.t.default" in {n.target for n in traced.stage("joint").nodes} - targets
    assert "aten.permute.default" in targets
    assert traced.trace.info("decomposed").title.startswith(f"decompositions: {table} (")
    assert {"h", "y", "grad_w"} <= set(names(traced.stage("decomposed")))


@pytest.mark.parametrize("table", ["nothing", "torch.nothing", "no_such_module.table", "torch.pi", "math.sqrt"])
def test_a_table_that_is_none(table: str, passes):
    failure = passes(LINEAR, work=f"passes&table={table}").failure
    assert failure.kind == "unsupported"
    assert failure.message.startswith(f"{table!r} is not a table of decompositions: ")


def test_work_that_does_not_exist(passes):
    assert passes(LINEAR, work="passages").failure.message == "there is no work 'passages'"


def test_inductors_output_code(passes, linear: Traced):
    traced = passes(LINEAR, work="passes&code")
    assert [s.name for s in traced.trace.stages if s.name.endswith(":code")] == ["forward:code", "backward:code"]
    code = traced.stage("forward:code").text
    assert "def call(" in code
    compile(code, "code", "exec")
    assert "forward:code" not in {s.name for s in linear.trace.stages}
