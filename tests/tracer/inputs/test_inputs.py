"""Inputs without configuration: what is written down first, search last."""

from dataclasses import replace

import pytest
from inline_snapshot import snapshot

PRELUDE = "import math\nimport torch\nfrom torch import nn, Tensor\nimport torch.nn.functional as F\n"


def test_a_constructor_that_reads_values_is_built_from_real_tensors(trace):
    traced = trace(
        PRELUDE
        + """
class Net(nn.Module):
    def __init__(self, depth=4):
        super().__init__()
        self.rates = [r.item() for r in torch.linspace(0, 0.5, depth)]
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(x) * self.rates[-1]
""",
        "Net",
    )
    assert "0.5" in traced.graph("forward")


@pytest.mark.parametrize(
    ("parameters", "given", "plans"),
    [
        ("features, eps=1e-5", "[[], {'features': 48}]", ["init.features: 48"]),
        ("features, eps=1e-5", "[[48], {'eps': 1e-3}]", ["init.features: 48", "init.eps: 0.001"]),
        ("features=48", "[[], {}]", []),
        ("features", "[[48], {}]", ["init.features: 48"]),
        ("features, options", "[[48], {}]", ["init.features[0]: 48"]),
        ("features, options", "[[48], {'eps': 1}]", ["init.features[0]: 48", "init.options['eps']: 1"]),
    ],
)
def test_get_init_inputs_may_be_positions_and_names(trace, parameters, given, plans):
    source = f"""
class Model(nn.Module):
    def __init__(self, {parameters}):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return x * self.weight

def get_inputs():
    return [torch.rand(16, 48)]

def get_init_inputs():
    return {given}
"""
    said = [f"{plan} · convention" for plan in plans]
    assert trace(PRELUDE + source, "Model").inputs() == [*said, "x: f32[16, 48] · convention"]


def test_a_search_begins_with_what_an_earlier_text_was_traced_with(trace):
    text = PRELUDE + "def f(x, y, n: int):\n    return (x @ y).sum(-1) * n\n"
    first = trace(text).outcome.inputs
    assert trace(text, previous=first).outcome.inputs == first
    smaller = tuple(replace(i, spec=i.spec.replace("64", "48")) for i in first)
    assert trace(text, previous=smaller).inputs() == snapshot(
        ["x: f32[4, 48] · search", "y: f32[48, 32] · search", "n: 2 · search"]
    )


def test_what_an_earlier_text_was_traced_with_is_left_where_it_fits_no_longer(trace):
    first = trace(PRELUDE + "def f(x, y):\n    return x @ y\n").outcome.inputs
    text = PRELUDE + "def f(x, y):\n    return torch.bmm(x, y)\n"
    assert trace(text, previous=first).inputs() == trace(text).inputs()


def test_what_a_comment_gives_but_nobody_can_make_is_the_comments_error(trace):
    source = "import torch\ndef f(x, n):\n    return x * n\n"
    for given, said in (
        ("x=f32[4], n=unknown", "cannot create `n`: NameError: name 'unknown' is not defined"),
        ("x=f32[4]@nothing, n=2", "cannot create `x`: "),
        ("x=f32[99999999999, 9999999999], n=2", "cannot create `x`: "),
    ):
        failure = trace(source, comment=given).failure
        assert (failure.kind, failure.severity) == ("comment", "error")
        assert failure.message.startswith(said)


def test_constructor_arguments_of_a_comment_that_do_not_fit(trace):
    source = """
import torch
class Net(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.layer = torch.nn.Linear(dim, dim)

    def forward(self, x):
        return self.layer(x)
"""
    failure = trace(source, "Net", comment="init(width=4), x=f32[4, 8]").failure
    assert (failure.kind, failure.severity) == ("comment", "error")
    assert failure.message == "Net's constructor has no parameter `width`; its parameters are dim"
    failure = trace(source, "Net", comment="init(dim='a'), x=f32[4, 8]").failure
    assert (failure.kind, failure.severity) == ("construct", "error")
    assert failure.message.startswith("TypeError: ") and failure.message.endswith(" (constructing Net)")
    failure = trace(source, "Net", comment="init(dim=nothing), x=f32[4, 8]").failure
    assert failure.message == "cannot create `init.dim`: NameError: name 'nothing' is not defined"
