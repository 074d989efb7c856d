"""A target with one of its optional tensors: a second variant of it."""

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
        self.emb = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50)

    # fx: idx=i64[4, 6]
    def forward(self, idx, targets=None, scale=None):
        x = self.emb(idx)
        if scale is not None:
            x = x * 2
        if targets is not None:
            logits = self.head(x)
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        else:
            logits = self.head(x[:, -1])
            loss = None
        return logits, loss

# fx: x=f32[4, 8]
def masked(x, mask=None, n=None):
    if mask is None:
        return x.sin()
    return x.sin() * mask.view(3, 7)

# fx: x=f32[4, 8], mask=f32[4, 8]
def given(x, mask=None):
    return x * mask if mask is not None else x
"""


def test_values_of_lines_that_only_a_variant_reaches(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "Net")
    targets, scale = traced.trace.variants
    assert [f"{i.name}: {i.spec}" for i in targets.inputs] == snapshot(
        ["idx: i64[4, 6]", "targets: i64[4, 6]", "scale: None"]
    )
    assert [(traced.at(v.span), v.spec) for v in targets.values if v.name] == snapshot(
        [
            ("logits = self.head(x)", "f32[4, 6, 50]"),
            ("loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())", "f32[]"),
        ]
    )
    assert [(traced.at(v.span), v.spec) for v in scale.values if v.name] == snapshot([("x = x * 2", "f32[4, 6, 8]")])


def test_what_a_variant_reaches_names_it(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "Net")
    assert [(traced.at(u.span).split("\n")[0], u.variants) for u in traced.trace.unreached] == snapshot(
        [("x = x * 2", ("scale",)), ("logits = self.head(x)", ("targets",))]
    )


def test_the_graphs_of_a_variant_are_those_of_the_loss(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "Net", work="variant=targets")
    assert [info.name for info in traced.trace.stages] == ["joint", "forward", "backward"]
    assert traced.trace.outputs == ("f32[4, 6, 50]", "f32[]")
    assert "aten._log_softmax_backward_data.default" in traced.graph("backward")
    assert traced.trace.notes == snapshot(("with targets, which is None by default",))
    assert traced.trace.variants == ()


def test_other_work_is_done_with_a_variant(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "Net", work="passes&variant=targets")
    assert traced.trace.info("decomposed") is not None
    assert "cross_entropy" in traced.graph("torch")


def test_a_variant_that_fails_has_a_partial_graph(trace: TraceFixture) -> None:
    traced = trace(SOURCE, "masked", work="variant=mask")
    assert traced.failure.span is not None
    assert traced.at(traced.failure.span) == "x.sin() * mask.view(3, 7)"
    assert "sin(x)" in traced.graph("torch")


def test_an_argument_that_is_given_or_that_is_no_tensor_makes_none(trace: TraceFixture) -> None:
    assert trace(SOURCE, "given").trace.variants == ()
    failure = trace(SOURCE, "given", work="variant=mask").failure
    assert failure.message == snapshot("given has no variant 'mask': it is neither an optional tensor nor a flag")


FLAGS = """
import torch
from torch import nn

class Mixed(nn.Module):
    def __init__(self, width: int, mode: str = "mean", gated: bool = False):
        super().__init__()
        self.mode = mode
        self.gate = nn.Linear(width, width) if gated else None

    def forward(self, x):
        if self.gate is not None:
            x = x * self.gate(x)
        if self.mode == "sum":
            return x.sum(1)
        return x.mean(1)
"""


def test_the_values_of_flags_that_code_branches_on_are_variants(trace: TraceFixture) -> None:
    traced = trace(FLAGS, "Mixed")
    assert [variant.name for variant in traced.trace.variants] == snapshot(["mode=sum", "gated=True"])
    assert [(traced.at(u.span), u.variants) for u in traced.trace.unreached] == snapshot(
        [("x = x * self.gate(x)", ("gated=True",)), ("return x.sum(1)", ("mode=sum",))]
    )
    summed = trace(FLAGS, "Mixed", work="variant=mode=sum")
    assert "aten.sum.dim_IntList" in summed.graph("forward")
    assert summed.trace.notes == snapshot(("with mode=sum, which is 'mean' by default",))
