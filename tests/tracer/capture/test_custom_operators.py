"""Operators of the user's own, with and without fake kernels."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot

HEAD = """\
import torch
from torch import Tensor
from torch.library import Library, custom_op, impl, register_fake

"""

SCALE = """
@custom_op("mine::scale", mutates_args=())
def scale(x: Tensor, by: float) -> Tensor:
    return x * by

@scale.register_fake
def _(x, by):
    return torch.empty_like(x)

def backward(ctx, grad):
    return grad * ctx.by, None

def setup(ctx, inputs, output):
    ctx.by = inputs[1]

scale.register_autograd(backward, setup_context=setup)
"""

LIBRARY = """
lib = Library("mine", "DEF")
lib.define("double(Tensor x) -> Tensor")

@impl(lib, "double", "CPU")
def double_cpu(x):
    return torch.cat([x, x])
"""

FAKE = """
@register_fake("mine::double")
def _(x):
    return x.new_empty(2 * x.size(0), x.size(1))
"""


def test_an_operator_with_a_backward(trace):
    traced = trace(HEAD + SCALE + "\n# fx: x=f32[4, 8]\ndef f(x):\n    return scale(x, 2.0).relu()\n", "f")
    assert traced.graph("forward").splitlines()[:2] == snapshot(
        ["x: f32[4, 8] = placeholder", "scale: f32[4, 8] = mine.scale.default(x, 2.0)"]
    )
    assert not traced.trace.refused


def test_operators_of_a_library_are_found_by_their_namespace(trace):
    source = (
        HEAD
        + LIBRARY
        + FAKE
        + "\n# fx: x=f32[4, 8]\n@torch.no_grad()\ndef f(x):\n    return torch.ops.mine.double(x)\n"
    )
    assert trace(source, "f").graph("inference") == snapshot("""\
x: f32[4, 8] = placeholder
double: f32[8, 8] = mine.double.default(x)
return (double,)\
""")


@pytest.mark.parametrize(
    ("operator", "call", "hint"),
    [
        (
            LIBRARY,
            "torch.ops.mine.double(x)",
            snapshot('Add `@torch.library.register_fake("mine::double")` to `def _(x): return torch.empty_like(x)`'),
        ),
        (
            SCALE.replace("@scale.register_fake", "@torch.no_grad()"),
            "scale(x, 2.0)",
            snapshot('Add `@torch.library.register_fake("mine::scale")` to `def _(x, by): return torch.empty_like(x)`'),
        ),
    ],
)
def test_what_is_missing_where_there_is_no_fake_kernel(operator: str, call: str, hint: str, trace):
    failure = trace(HEAD + operator + f"\n# fx: x=f32[4, 8]\ndef f(x):\n    return {call}\n", "f").failure
    assert failure.kind == "unsupported"
    assert "has no fake kernel" in failure.message
    assert failure.hint.partition(", which returns tensors")[0] == hint


def test_a_fake_kernel_that_says_something_else(trace):
    wrong = FAKE.replace("2 * x.size(0)", "x.size(0)")
    source = (
        HEAD
        + LIBRARY
        + wrong
        + "\n# fx: x=f32[4, 8]\n@torch.no_grad()\ndef f(x):\n    return torch.ops.mine.double(x)\n"
    )
    traced = trace(source, "f")
    assert [(r.severity, r.message, traced.at(r.span)) for r in traced.trace.remarks] == snapshot(
        [
            (
                "warning",
                "the fake kernel of `mine::double` returns f32[4, 8], the operator itself f32[8, 8]",
                "torch.ops.mine.double(x)",
            )
        ]
    )


def test_a_fake_kernel_that_is_right_is_not_mentioned(trace):
    source = HEAD + SCALE + "\n# fx: x=f32[4, 8]\ndef f(x):\n    return scale(x, 2.0)\n"
    assert trace(source, "f").trace.remarks == ()


def test_an_operator_is_called_with_the_parameters_of_its_function(trace):
    source = (
        HEAD
        + SCALE
        + """
@custom_op("mine::crop", mutates_args=())
def crop(images: Tensor, box: list[int]) -> Tensor:
    return images[..., box[0] : box[1]].clone()

@crop.register_fake
def _(images, box):
    return images.new_empty(*images.shape[:-1], box[1] - box[0])
"""
    )
    assert trace(source, "scale").inputs() == snapshot(["x: f32[4, 64] · search", "by: 0.5 · search"])
    assert trace(source, "crop", comment="images=f32[4, 3, 8, 8], box=[2, 5]").trace.outputs == snapshot(
        ("f32[4, 3, 8, 3]",)
    )


OPERATORS = """
@custom_op("mine::clipped", mutates_args=())
def clipped(x: Tensor) -> Tensor:
    return x.clamp(0, 1)

@clipped.register_fake
def _(x):
    return torch.empty_like(x)

lib = Library("mine", "FRAGMENT")
for schema in ("sine(Tensor x) -> Tensor", "twice(Tensor x) -> Tensor", "largest(Tensor x) -> Tensor"):
    lib.define(schema)
lib.impl("sine", lambda x: torch.from_numpy(__import__("numpy").sin(x.numpy())), "CPU")
lib.impl("sine", lambda x: torch.empty_like(x), "Meta")
lib.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
lib.impl("largest", lambda x: x.argmax(-1), "CPU")
lib.impl("largest", lambda x: x.new_empty(x.shape[:-1], dtype=torch.int64), "Meta")
"""


def no_formula(trace, body: str) -> list[str]:
    """The remarks on operators, without their remedy, of a function of `x` that returns `body`."""
    traced = trace(f"{HEAD}{SCALE}{OPERATORS}\n# fx: x=f32[4, 8]\ndef f(x):\n    return {body}\n", "f")
    remarks = [remark for remark in traced.trace.remarks if remark.code == "no-gradient"]
    return [f"{r.severity}: {traced.at(r.span)}: {r.message.partition(';')[0]}" for r in remarks]


def test_an_operator_without_a_formula_on_the_way_of_a_gradient(trace):
    assert no_formula(trace, "clipped(x * 2)") == [
        "hint: clipped(x * 2): `mine.clipped` has no autograd formula: backward raises here"
    ]
    assert no_formula(trace, "torch.ops.mine.sine(x * 2)") == [
        "hint: torch.ops.mine.sine(x * 2): `mine.sine` has no autograd formula: "
        "backward may drop or falsify the gradients of its operands"
    ]


@pytest.mark.parametrize(
    "body",
    [
        "scale(x, 2.0)",  # has a formula
        "torch.ops.mine.twice(x)",  # consists of operations that have one
        "torch.ops.mine.largest(x)",  # integers have no gradient
        "torch.ops.mine.sine(x.detach())",  # no gradient flows
        "torch.no_grad()(torch.ops.mine.sine)(x)",
        "torch.ops.aten.relu(x)",
        "torch.ops.aten.add.Tensor(x, x)",
        "torch.ops.aten.logit(x)",
    ],
)
def test_no_word_on_an_operator_that_is_right(trace, body: str):
    assert no_formula(trace, body) == []
