"""Modules in evaluation mode: because a comment says so, or because the call that shows the inputs is made in it."""

import pytest
from inline_snapshot import snapshot

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.fc = nn.Linear(dim, dim)
        self.norm = nn.BatchNorm1d(dim)
        self.drop = nn.Dropout(0.5)
    def forward(self, x):
        return self.drop(self.norm(self.fc(x)))
    def features(self, x):
        return self.drop(self.fc(x))
"""
CALLED = """
def main():
    model = Net(16)
    model.eval()
    model(torch.randn(3, 16))
"""


def evaluates(traced):
    """Whether it was traced in evaluation mode, which the ops, the backward graph and the notes agree on."""
    ops = " ".join(node.target for node in traced.stage("joint").nodes)
    assert [stage.name for stage in traced.trace.stages] == ["joint", "forward", "backward"]
    found = "dropout" not in ops and "_native_batch_norm_legit_functional" not in ops
    assert found == ("traced in evaluation mode" in traced.trace.notes)
    return found


def test_a_comment_says_the_mode(trace):
    traced = trace(NET, "Net", comment="eval(), x=f32[4, 8]")
    assert evaluates(traced)
    assert traced.inputs() == snapshot(["self.training: False · comment", "x: f32[4, 8] · comment"])
    assert "aten._native_batch_norm_legit_no_training.default" in [n.target for n in traced.stage("forward").nodes]
    assert not evaluates(trace(NET, "Net", comment="x=f32[4, 8]"))


def test_methods_of_a_module_too(trace):
    assert evaluates(trace(NET, "Net.features", comment="init(dim=6), eval(), x=f32[4, 6]"))


def test_the_mode_of_the_call_that_shows_the_inputs(trace):
    traced = trace(NET + CALLED, "Net")
    assert evaluates(traced)
    assert traced.inputs() == snapshot(
        ["init.dim: 16 · call site", "self.training: False · call site", "x: f32[3, 16] · call site"]
    )
    assert not evaluates(trace(NET + CALLED.replace(".eval()", ".train()"), "Net"))


def test_the_mode_that_a_surrounding_module_puts_it_in(trace):
    outer = """
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net(12).eval()
    def forward(self, x):
        return self.net(x)

def get_inputs():
    return [torch.randn(2, 12)]
"""
    assert evaluates(trace(NET + outer, "Net"))


def test_the_comment_counts_more_than_the_call(trace):
    traced = trace(NET + CALLED, "Net", comment="train()")
    assert not evaluates(traced)
    assert traced.inputs()[1:] == snapshot(["self.training: True · comment", "x: f32[3, 16] · call site"])


def test_the_module_decides_what_a_mode_means(trace):
    frozen = NET.replace(
        "    def forward",
        "    def train(self, mode=True):\n        super().train(mode)\n        self.norm.eval()\n"
        "        return self\n    def forward",
    )
    ops = [node.target for node in trace(frozen, "Net", comment="train(), x=f32[4, 8]").stage("forward").nodes]
    assert "aten._native_batch_norm_legit_no_training.default" in ops
    assert "aten.native_dropout.default" in ops


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("eval()", "`eval()` only applies to modules, and f is not in a module"),
        ("eval, x=f32[4]", "cannot parse the `# fx:` comment: write the mode as `eval()`"),
        ("eval(True)", "cannot parse the `# fx:` comment: `eval()` takes no arguments"),
        ("eval(), train()", "cannot parse the `# fx:` comment: the mode is written twice"),
    ],
)
def test_what_is_wrong_with_a_mode(comment: str, message: str, trace):
    failure = trace("import torch\n\ndef f(x):\n    return x.sin()\n", "f", comment=comment).failure
    assert (failure.kind, failure.severity, failure.message) == ("comment", "error", message)
