"""What AOTAutograd makes of a function, under names that a person can read."""

from inline_snapshot import snapshot

PRELUDE = "import torch\nfrom torch import Tensor\nimport torch.nn.functional as F\n"


def test_forward_and_backward_have_the_users_names(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[8, 16], w=f32[16, 32]
def f(x, w):
    h = x @ w
    y = torch.relu(h)
    return y
"""
    )
    assert traced.graph("forward") == snapshot("""\
x: f32[8, 16] = placeholder
w: f32[16, 32] = placeholder
h: f32[8, 32] = aten.mm.default(x, w)
y: f32[8, 32] = aten.relu.default(h)
detach: f32[8, 32] = aten.detach.default(y)
detach_1: f32[8, 32] = aten.detach.default(detach)
t: f32[16, 8](1, 16) = aten.t.default(x)
t_1: f32[32, 16](1, 32) = aten.t.default(w)
return (y, detach_1, t, t_1)\
""")
    assert traced.graph("backward") == snapshot("""\
detach_1: f32[8, 32] = placeholder
t: f32[16, 8](1, 16) = placeholder
t_1: f32[32, 16](1, 32) = placeholder
grad_y: f32[8, 32] = placeholder
threshold_backward: f32[8, 32] = aten.threshold_backward.default(grad_y, detach_1, 0)
grad_w: f32[16, 32] = aten.mm.default(t, threshold_backward)
grad_x: f32[8, 16] = aten.mm.default(threshold_backward, t_1)
return (grad_x, grad_w)\
""")


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


def test_a_mutated_input_is_written_back(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[4], state=f32[4]
def f(x, state):
    state.mul_(0.9)
    return x + state
"""
    )
    assert traced.graph("inference" if traced.trace.ops("forward") is None else "forward") == snapshot("""\
x: f32[4] = placeholder
state: f32[4] = placeholder
mul: f32[4] = aten.mul.Tensor(state, 0.9)
add: f32[4] = aten.add.Tensor(x, mul)
copy: f32[4] = aten.copy_.default(state, mul)
return (add,)\
""")


def test_the_same_tensor_twice_a_detached_one_and_values_that_are_no_tensors(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[4], w=f32[4], n=3, mode='sum'
def f(x: Tensor, w: Tensor, n: int, mode: str):
    return {"a": x * x, "b": (w.detach() * x, n), "c": mode}
"""
    )
    assert traced.graph("forward") == snapshot("""\
x: f32[4] = placeholder
w: f32[4] = placeholder
mul: f32[4] = aten.mul.Tensor(x, x)
detach: f32[4] = aten.detach.default(w)
mul_1: f32[4] = aten.mul.Tensor(detach, x)
return (mul, mul_1, x, detach)\
""")
    assert traced.trace.outputs == ("f32[4]", "f32[4]")


def test_dataclass_outputs_and_container_inputs(trace):
    traced = trace(
        PRELUDE
        + """
from dataclasses import dataclass

@dataclass
class Out:
    logits: Tensor
    loss: Tensor

# fx: xs=(f32[4], f32[4]), named={'w': f32[4]}
def f(xs, named):
    a, b = xs
    y = a * named["w"]
    return Out(y, (y - b).sum())
"""
    )
    assert traced.graph("forward") == snapshot("""\
xs_0: f32[4] = placeholder
xs_1: f32[4] = placeholder
named_w: f32[4] = placeholder
y: f32[4] = aten.mul.Tensor(xs_0, named_w)
sub: f32[4] = aten.sub.Tensor(y, xs_1)
sum_1: f32[] = aten.sum.default(sub)
return (y, sum_1, xs_0, named_w)\
""")
    assert traced.inputs() == snapshot(
        ["xs[0]: f32[4] · comment", "xs[1]: f32[4] · comment", "named['w']: f32[4] · comment"]
    )


def test_outputs_that_alias_an_input(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[4, 8]
def f(x):
    return x.view(-1), x.t(), x * 2
"""
    )
    assert traced.trace.outputs == snapshot(("f32[32]", "f32[8, 4](1, 8)", "f32[4, 8]"))


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


def test_a_custom_autograd_function_shows_its_own_backward(trace):
    traced = trace(
        PRELUDE
        + """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad

# fx: x=f32[4]
def f(x):
    return Square.apply(x)
"""
    )
    assert traced.graph("backward") == snapshot("""\
x: f32[4] = placeholder
grad_out: f32[4] = placeholder
mul_1: f32[4] = aten.mul.Tensor(x, 2)
grad_x: f32[4] = aten.mul.Tensor(mul_1, grad_out)
return (grad_x,)\
""")
