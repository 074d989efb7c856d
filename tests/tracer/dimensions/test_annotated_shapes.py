"""Annotations with dimensions are held against what ran: results, and variables of the function."""

from __future__ import annotations

import pytest
from conftest import Traced, TraceFixture
from inline_snapshot import snapshot

HEAD = """\
from typing import Annotated, Optional

import torch
from torch import Tensor, nn


"""
JAXTYPING = HEAD.replace("from torch import Tensor", "from jaxtyping import Float, Int\nfrom torch import Tensor")


def mistakes(traced: Traced) -> list[str]:
    """Each remark with the expression that it is about."""
    return [f"{r.severity}: {traced.at(r.span)} | {r.message}" for r in traced.trace.remarks]


def test_what_is_returned(trace: TraceFixture) -> None:
    source = HEAD + (
        'def f(x: Annotated[Tensor, "b t c"]) -> Annotated[Tensor, "b t"]:\n'
        "    total = x.sum(1)\n"
        "    return total / 2\n"
    )
    traced = trace(source)
    assert mistakes(traced) == snapshot(
        ['error: total / 2 | the result is f32[4, 64], but its annotation is "b t": t is 8 in x, but 64 here']
    )
    assert [traced.at(other.span) for r in traced.trace.remarks for other in r.related] == ['Annotated[Tensor, "b t"]']
    assert mistakes(trace(source.replace("sum(1)", "sum(2)"))) == []


def test_what_a_variable_holds(trace: TraceFixture) -> None:
    source = HEAD + (
        'def f(x: Annotated[Tensor, "b t c"]):\n'
        '    y: Annotated[Tensor, "b t c"] = x.transpose(1, 2)\n'
        "    return y.relu()\n"
    )
    assert mistakes(trace(source)) == snapshot(
        ['error: x.transpose(1, 2) | y is f32[4, 64, 8], but its annotation is "b t c": t is 8 in x, but 64 here']
    )
    assert mistakes(trace(source.replace('y: Annotated[Tensor, "b t c"]', 'y: Annotated[Tensor, "b c t"]'))) == []


@pytest.mark.parametrize(
    ("inputs", "result", "body", "reason"),
    [
        ("b c", "b 2*c", "torch.cat([x, x], -1)", ""),
        ("b c", "b 2*c", "torch.cat([x, x, x], -1)", "2*c is 128, but 192 here"),
        ("b h w", "b h//2 w", "x[:, ::2]", ""),
        ("b t c", "... c", "x.mean(1)", ""),
        ("b t c", "... t", "x.mean(1)", "t is 8 in x, but 64 here"),
        ("*b c", "*b", "x.sum(-1)", ""),
        ("*b c", "*b", "x.sum(0)", "*b is 4 in x, but 64 here"),
        ("b t c", "#b 1 c", "x.mean(1, keepdim=True)", ""),
        ("b t c", "#b 1 c", "x.sum((0, 1), keepdim=True)", ""),
        ("b t c", "#b 1 c", "x", "8 is not 1"),
        ("b c", "_ c", "x[:3]", ""),
        ("b c", "b", "x", 'it has 2 dimensions, but "b" has 1 dimension'),
        ("b c", "", "x.mean()", ""),
        ("b c", "", "x.mean(0)", 'it has 1 dimension, but "" has 0 dimensions'),
        ("b c", "b d", "x @ torch.ones(x.size(1), 5)", ""),
    ],
)
def test_dimensions(trace: TraceFixture, inputs: str, result: str, body: str, reason: str) -> None:
    traced = trace(
        HEAD + f'def f(x: Annotated[Tensor, "{inputs}"]) -> Annotated[Tensor, "{result}"]:\n    return {body}\n'
    )
    said = mistakes(traced)
    assert len(said) == bool(reason)
    assert all(reason in text for text in said)


def test_prose_is_no_shape(trace: TraceFixture) -> None:
    traced = trace(HEAD + 'def f(x: Annotated[Tensor, "b c"]) -> Annotated[Tensor, "the mean"]:\n    return x.mean()\n')
    assert mistakes(traced) == []


def test_an_operand_of_a_guessed_rank_makes_it_a_warning(trace: TraceFixture) -> None:
    traced = trace(
        HEAD + 'def f(x: Annotated[Tensor, "b c"], y) -> Annotated[Tensor, "b"]:\n    return x + torch.relu(y)\n'
    )
    assert [text.partition(":")[0] for text in mistakes(traced)] == ["warning"]


def test_dtypes_of_jaxtyping(trace: TraceFixture) -> None:
    pytest.importorskip("jaxtyping")
    source = JAXTYPING + 'def f(x: Float[Tensor, "b c"]) -> Float[Tensor, "b"]:\n    return x.argmax(-1)\n'
    assert mistakes(trace(source)) == snapshot(
        ["error: x.argmax(-1) | the result is i64[4], but its annotated dtype is Float"]
    )
    assert mistakes(trace(source.replace('-> Float[Tensor, "b"]', '-> Int[Tensor, "b"]'))) == []
