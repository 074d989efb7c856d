"""Every operation knows the expression it came from, in forward and in backward."""

import pytest

from fx_lsp.tracer.compat import HAS_ANNOTATE, HAS_COLUMNS

PRELUDE = "import torch\nimport torch.nn.functional as F\n"

pytestmark = pytest.mark.skipif(not (HAS_COLUMNS and HAS_ANNOTATE), reason="this Python or torch keeps no columns")


def expressions(traced, stage):
    """For each operation of a stage, what it calls and the source text of its innermost expression."""
    return [
        (n.target.removeprefix("aten.").split(".")[0], traced.at(n.span) if n.span else None)
        for n in traced.stage(stage).nodes
        if n.op == "call_function"
    ]


def test_two_operations_on_one_line_are_told_apart(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[8, 16], w=f32[16, 32], b=f32[32]
def f(x, w, b):
    return F.gelu(x @ w + b).sum(dim=-1)
"""
    )
    assert expressions(traced, "joint")[:4] == [
        ("mm", "x @ w"),
        ("add", "x @ w + b"),
        ("gelu", "F.gelu(x @ w + b)"),
        ("sum", "F.gelu(x @ w + b).sum(dim=-1)"),
    ]


def test_backward_operations_inherit_the_expression_of_their_forward(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[8, 16], w=f32[16, 32]
def f(x, w):
    h = x @ w
    return torch.tanh(h)
"""
    )
    found = dict(expressions(traced, "backward"))
    assert found["tanh_backward"] == "torch.tanh(h)"
    assert found["mm"] == "x @ w"


def test_a_sum_of_gradients_belongs_to_the_value_whose_gradient_it_is(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[8, 16]
def f(x):
    h = torch.exp(x)
    return h.sin() * h.cos()
"""
    )
    sums = [traced.at(n.span) for n in traced.stage("backward").nodes if n.target == "aten.add.Tensor" and n.span]
    assert sums == ["torch.exp(x)"]


def test_multi_line_calls_and_text_that_is_not_ascii(trace):
    traced = trace(
        PRELUDE
        + """
# fx: größe=f32[8]
def f(größe):
    return torch.clamp(
        größe * 2,  # Maß
        min=0.0,
    )
"""
    )
    assert [text for _, text in expressions(traced, "forward")][0] == "größe * 2"
    assert expressions(traced, "forward")[1][1].startswith("torch.clamp(\n")


def test_variables_that_are_unpacked_to_name_the_parts(trace):
    traced = trace(
        PRELUDE
        + """
def swapped(x):
    low, high = x - 1, x + 1
    return high, low

# fx: x=f32[2, 12]
def f(x):
    a, b, c = x.chunk(3, -1)
    _, where = c.max(-1)
    first, second = b * 2
    (p, q), r = (a.sin(), a.cos()), a.tan()
    one, other = swapped(c)
    return p, q, r, first * second, where, one * other
"""
    )
    names = {n.name: n.target for n in traced.stage("forward").nodes if n.op == "call_function"}
    parts = {n for n, target in names.items() if target in ("_operator.getitem", "operator.getitem")}
    assert parts >= {"a", "b", "c", "where", "first", "second"}
    assert (names["p"], names["q"], names["r"]) == ("aten.sin.default", "aten.cos.default", "aten.tan.default")
    assert (names["low"], names["high"]) == ("aten.sub.Tensor", "aten.add.Tensor")
    assert not {"_", "value", "one", "other"} & names.keys()


def test_what_variables_and_expressions_hold(trace):
    traced = trace(
        PRELUDE
        + """
# fx: x=f32[8, 16]
def f(x):
    a, b = x.chunk(2, dim=1)
    for i in range(3):
        a = a[: 4 - i]
    n = 3
    return a, b * n
"""
    )
    held = {
        (v.span.line - traced.source[: traced.source.index("def f")].count("\n"), v.name): (v.spec, v.varies)
        for v in traced.trace.values
    }
    assert held[1, "x"] == ("f32[8, 16]", False)
    assert held[2, "a"] == ("f32[8, 8](16, 1)", False)
    assert held[4, "a"] == ("f32[4, 8](16, 1)", True)
    assert held[6, "return"][0].startswith("(f32[2, 8]")
    assert held[5, "n"] == ("3", False)


def test_whole_numbers_of_attributes_are_read_without_running_anything(trace):
    traced = trace(
        PRELUDE
        + """
class Config:
    width = 8

class Block(torch.nn.Module):
    steps = 2

    def __init__(self):
        super().__init__()
        self.config, self.inner, self.calls = Config(), torch.nn.Linear(16, 8), 0
        self.inner.heads = 4

    @property
    def computed(self):
        raise RuntimeError

    def forward(self, x):
        self.calls += 1
        if x.dim() == 9:
            return x * self.computed * self.calls
        return self.inner(x).view(-1, self.inner.heads, self.config.width // self.inner.heads) * self.steps
""",
        "Block",
    )
    lines = traced.source.splitlines()
    read = {lines[v.span.line - 1][v.span.col : v.span.end_col]: v.spec for v in traced.trace.values if not v.name}
    numbers = {text: spec for text, spec in read.items() if spec.isdigit()}
    assert numbers == {"self.inner.heads": "4", "self.config.width": "8", "self.steps": "2"}


def test_operations_of_a_written_backward_stand_on_their_own_lines(trace):
    traced = trace(
        PRELUDE
        + """
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad):
        x, s = ctx.saved_tensors
        return grad * (s * (1 + x * (1 - s)))


# fx: x=f32[8, 16]
def f(x):
    return Swish.apply(x).exp()
"""
    )
    found = expressions(traced, "backward")
    assert ("add", "1 + x * (1 - s)") in found
    assert found[-1] == ("mul", "grad * (s * (1 + x * (1 - s)))")
    assert ("mul", "Swish.apply(x).exp()") in found


OWN_MODULE = """
import torch
from torch import nn

class Norm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.register_buffer("shift", torch.zeros(dim))

    def forward(self, x):
        scaled = x * self.weight
        return scaled[..., :1], scaled + self.shift

def halves(x):
    return [half.relu() for half in x.chunk(2, -1)]

class Block(nn.Module):  # fx: init(), x=f32[4, 8]
    def __init__(self):
        super().__init__()
        self.norm = Norm(8)

    def forward(self, x):
        for part in halves(x):
            x = x + self.norm(x)[1] + part.sum()
        return x
"""


def test_calls_of_the_files_own_code_have_what_they_return(trace):
    traced = trace(OWN_MODULE, "Block")
    values = {traced.at(value.span): value.spec for value in traced.trace.values if not value.name}
    assert {text: values.get(text) for text in ("self.norm(x)", "self.weight", "self.shift", "halves(x)")} == {
        "self.norm(x)": "(f32[4, 1](8, 1), f32[4, 8])",
        "self.weight": "f32[8]",
        "self.shift": "f32[8]",
        "halves(x)": "[f32[4, 4], f32[4, 4]]",
    }
