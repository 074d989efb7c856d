"""What ran of a target before it failed."""

from __future__ import annotations

from conftest import TraceFixture
from inline_snapshot import snapshot

SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, padding=1)
        self.hidden = nn.Linear(64, 128)

    # fx: x=f32[4, 3, 4, 4]
    def forward(self, x):
        a, b = F.relu(self.conv(x)).chunk(2, dim=1)
        hidden = self.hidden((1 - a * b).flatten(1))
        return hidden.sum()

# fx: x=f32[4, 8]
def branches(x):
    y = x.sin()
    y[0] = 0
    y.mul_(2)
    if max(y.T.sum(), y.max()) > 0:
        raise ValueError
    raise TypeError

# fx: x=f32[4, 8], n=3
def raises(x, n):
    y = helped(x)
    if n > 2:
        raise ValueError("at most two")
    return y

def helped(x):
    inside = x.exp()
    return inside

# fx: x=f32[4, 8]
def at_once(x):
    return x @ x

# fx: x=f32[4]
def needs(x):
    n = x.sum().item()
    y = x.cos() * n
    if max(y.sum(), y.max()) > 0:
        raise ValueError
    raise TypeError

def guessed(x, w):
    y = torch.sin(x) @ w
    raise ValueError("not yet")

# fx: x=f32[4, 8]
def fine(x):
    return x + 1
"""


def test_the_torch_calls_up_to_the_one_that_fails(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "Net")
    assert traced.graph("torch") == snapshot("""\
conv_weight: f32[16, 3, 3, 3] = placeholder
conv_bias: f32[16] = placeholder
hidden_weight: f32[128, 64] = placeholder
hidden_bias: f32[128] = placeholder
x: f32[4, 3, 4, 4] = placeholder
conv2d: f32[4, 16, 4, 4] = torch.conv2d(x, conv_weight, conv_bias, (1, 1), (1, 1), (1, 1), 1)
relu: f32[4, 16, 4, 4] = torch.nn.functional.relu(conv2d, inplace=False)
chunk: (f32[4, 8, 4, 4](256, 16, 4, 1), f32[4, 8, 4, 4](256, 16, 4, 1)) = chunk(relu, 2, dim=1)
a: f32[4, 8, 4, 4](256, 16, 4, 1) = operator.getitem(chunk, 0)
b: f32[4, 8, 4, 4](256, 16, 4, 1) = operator.getitem(chunk, 1)
mul: f32[4, 8, 4, 4] = mul(a, b)
sub: f32[4, 8, 4, 4] = operator.sub(1, mul)
flatten: f32[4, 128] = flatten(sub, 1)
linear: None = torch._C._nn.linear(flatten, hidden_weight, hidden_bias)\
""")
    assert traced.failure.partial is not None
    assert [(s.name, s.ops) for s in traced.failure.partial.stages] == [("torch", 6)], "what fails is no op that ran"
    assert traced.stage("torch").nodes[-1].comment == "fails here"
    assert traced.at(traced.stage("torch").nodes[-1].span) == "self.hidden((1 - a * b).flatten(1))"


def test_the_values_up_to_there(trace: TraceFixture) -> None:
    partial = trace(SOURCE, "Net").failure.partial
    assert partial is not None
    assert [f"{v.name}: {v.spec}" for v in partial.values if v.name] == snapshot(
        ["x: f32[4, 3, 4, 4]", "a: f32[4, 8, 4, 4](256, 16, 4, 1)", "b: f32[4, 8, 4, 4](256, 16, 4, 1)"]
    )


def test_code_that_needs_a_value(trace: TraceFixture) -> None:
    assert trace(SOURCE, "branches").graph("torch") == snapshot("""\
x: f32[4, 8] = placeholder
y: f32[4, 8] = sin(x)
setitem: None = operator.setitem(y, 0, 0)
mul: f32[4, 8] = mul_(y, 2)
getattr_1: f32[8, 4](1, 8) = getattr(mul, 'T')
sum_1: f32[] = sum(getattr_1)
max_1: f32[] = max(mul)
gt: b8[] = gt(max_1, sum_1)
bool_1: None = __bool__(gt)\
""")


def test_an_error_of_the_users_own(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "raises")
    assert traced.graph("torch") == snapshot("""\
x: f32[4, 8] = placeholder
inside: f32[4, 8] = exp(x)\
""")
    assert traced.failure.partial is not None
    assert ("inside", "f32[4, 8]") in [(v.name, v.spec) for v in traced.failure.partial.values]


def test_what_fails_at_its_first_operation_has_no_graph(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "at_once")
    assert (traced.failure.partial, traced.reply.stages) == (None, {})


def test_symbols_stand_for_values_as_far_as_they_do(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "needs")
    assert traced.failure.kind == "data-dependent"
    assert "cos" in traced.graph("torch")


def test_guessed_inputs_are_those_of_the_partial_trace(trace: TraceFixture) -> None:
    partial = trace(SOURCE, "guessed").failure.partial
    assert partial is not None
    assert [(item.name, item.guessed) for item in partial.inputs] == [("x", True), ("w", True)]


def test_a_target_that_runs_has_none(trace: TraceFixture) -> None:
    assert "torch" not in trace(SOURCE, "fine").reply.stages
