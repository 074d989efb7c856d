"""The user's own `torch.autograd.Function`s."""

from __future__ import annotations

from inline_snapshot import snapshot

SOURCE = """\
import torch

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad * w, grad * x

def scaled(x, w):
    return Scale.apply(x, w).sum()
"""


def test_a_gradient_for_each_argument(trace):
    traced = trace(SOURCE, "scaled")
    assert not traced.trace.refused
    assert not traced.trace.remarks


def test_a_gradient_that_is_missing_is_an_error(trace):
    traced = trace(SOURCE.replace(", grad * x", ""), "scaled")
    assert traced.trace.refused
    (remark,) = traced.trace.remarks
    assert (remark.severity, remark.message, traced.at(remark.span)) == snapshot(
        (
            "error",
            "`Scale.backward` returns 1 gradient for 2 arguments of `forward`: return one, or None, for each",
            "grad * w",
        )
    )


def test_nothing_is_missing_where_the_rest_is_none(trace):
    source = SOURCE.replace("grad * w, grad * x", "grad * w, grad * x, None")
    assert not trace(source, "scaled").trace.refused
