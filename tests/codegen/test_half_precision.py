"""Operands of comparisons and steps in half precision are rounded as in memory: a maximum is equal to an element."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

pytest.importorskip("triton")

import torch
from interpreted import captured, checked, generated, loaded, wrong


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_gradient_of_a_maximum_of_what_is_computed(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(7, 129, dtype=dtype, requires_grad=True), torch.randn(129, dtype=dtype, requires_grad=True)
    assert wrong(lambda x, y: (x * 1.37 - y).amax(0), [x, y]) == []


def test_a_bound_that_was_stored() -> None:
    torch.manual_seed(0)

    def largest(x: torch.Tensor) -> torch.Tensor:
        scores = x * 1.37 + 0.11
        return (scores >= torch.topk(scores, 5)[0][..., -1:]).sum(-1)

    assert wrong(largest, [torch.randn(7, 33, dtype=torch.float16)]) == []


@pytest.mark.parametrize(
    "step",
    [
        torch.floor,
        torch.round,
        torch.trunc,
        lambda y: y % 1,
        lambda y: torch.div(y, 0.5, rounding_mode="floor"),
        torch.Tensor.long,
    ],
)
def test_a_step_of_a_computed_value_is_that_of_its_stored_value(step: Callable[[torch.Tensor], torch.Tensor]) -> None:
    torch.manual_seed(0)
    x = torch.randn(7, 1290, dtype=torch.bfloat16) * 8
    file = generated(captured(lambda x: (x * 1.37, step(x * 1.37)), [x]))
    computed, stepped = loaded(file).f(x)
    assert torch.equal(stepped, step(computed))


def test_what_is_exact_is_not_rounded() -> None:
    x = torch.randn(7, 33, dtype=torch.float16)
    assert "to(tl.float16)" not in generated(captured(lambda x: (-x.abs() >= x, torch.relu(x * 2) > 0), [x])).text


def test_the_interpreter_rounds_to_the_nearest() -> None:
    x = torch.tensor([0.99999, 1.00390625, 1.01171875, -3.1415927, 1e-40, float("inf"), float("nan"), 65519.0])
    found = loaded(generated(captured(lambda x: x.bfloat16(), (x,)))).f(x)
    torch.testing.assert_close(found, x.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_a_quotient_that_becomes_a_step_is_rounded_as_pytorch_rounds_it() -> None:
    def quantized(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = x.abs().amax(-1, keepdim=True) / 127
        return torch.round((x / scale).clamp(-100, 100)).to(torch.int8), scale

    inputs = [torch.randn(7, 129)]
    assert "tl.div_rn(x" in re.sub(r"arg0_1", "x", checked(quantized, inputs).text)
