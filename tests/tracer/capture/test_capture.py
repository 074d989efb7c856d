"""What AOTAutograd makes of a function, under names that a person can read."""

from inline_snapshot import snapshot

PRELUDE = "import torch\nfrom torch import Tensor\nimport torch.nn.functional as F\n"


def test_saved_values_say_what_they_are_and_who_reads_them(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[8, 16], w=f32[16, 32]
def f(x, w):
    return torch.tanh(x @ w)
"""
    )
    assert [(s.name, s.spec, s.bytes, s.kind, s.used_by) for s in traced.trace.saved] == snapshot(
        [
            ("detach_1", "f32[8, 32]", 1024, "activation", ("tanh_backward",)),
            ("t", "f32[16, 8](1, 16)", 512, "input", ("grad_w",)),
            ("t_1", "f32[32, 16](1, 32)", 2048, "input", ("grad_x",)),
        ]
    )
    assert traced.trace.activation_bytes == sum(s.bytes for s in traced.trace.saved if s.kind == "activation")


def test_no_differentiable_output_gives_an_inference_graph(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[4]
def f(x):
    with torch.no_grad():
        return x * 2
"""
    )
    assert [s.name for s in traced.trace.stages] == ["inference"]
    assert traced.graph("inference") == snapshot("""\
x: f32[4] = placeholder
mul: f32[4] = aten.mul.Tensor(x, 2)
return (mul,)\
""")


def test_where_all_outputs_are_views_of_inputs_a_note_says_why_there_is_no_backward(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[4, 8]
def f(x):
    return x.view(2, 2, 8).transpose(0, 1)
"""
    )
    assert [s.name for s in traced.trace.stages] == ["inference"]
    assert "view of an input" in traced.trace.notes[0]


def test_parameters_and_buffers_of_a_module_are_inputs(trace):
    traced = trace(
        PRELUDE
        + """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    # fx: x=f32[2, 4]
    def forward(self, x):
        return self.fc(x) * self.scale
""",
        "Block",
    )
    forward = traced.stage("forward")
    assert [(n.name, n.comment) for n in forward.nodes if n.op == "placeholder"] == snapshot(
        [("fc_weight", "parameter"), ("fc_bias", "parameter"), ("scale", "buffer"), ("x", "")]
    )
    assert traced.stage("backward").nodes[-1].args == snapshot(("(grad_fc_weight, grad_fc_bias, None, grad_x)",))


def test_recomputed_operations_are_marked_in_backward(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[8, 16], b=f32[16]
def f(x, b):
    return F.gelu(x + b)
"""
    )
    recomputed = [n.target for n in traced.stage("backward").nodes if n.comment.startswith("recomputed")]
    assert recomputed == ["aten.add.Tensor"]
