"""What an operation takes in place of what it refused: it is asked itself, and no message is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.inputs.solve.operands import Question, Replacement, of_other_dtypes, of_other_ranks, of_other_sizes
from fx_lsp.tracer.run.torch_calls import FailedCall


def asked(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Question:
    """A question about a call that raises."""
    with pytest.raises(Exception) as raised:
        func(*args, **kwargs)
    return Question(FailedCall(func, args, kwargs, ()), raised.value)


def shapes(changes: list[Replacement], operand: torch.Tensor) -> list[list[int]]:
    return [list(change.shape) for change in changes if change.operand is operand]


@pytest.mark.parametrize(
    ("func", "shape", "others", "fitting"),
    [
        pytest.param(F.linear, (4, 256), [(128, 64)], [4, 64], id="the width of a layer"),
        pytest.param(F.conv2d, (4, 12, 16, 16), [(32, 3, 3, 3)], [4, 3, 16, 16], id="channels"),
        pytest.param(torch.bmm, (8, 4, 16), [(12, 16, 5)], [12, 4, 16], id="the batch of two matrices"),
        pytest.param(torch.add, (4, 12, 32), [(8, 32)], [4, 8, 32], id="a dimension of a sum"),
        pytest.param(F.layer_norm, (4, 12), [], [4, 64], id="what a norm is made for"),
    ],
)
def test_sizes_of_one_operand(func: Any, shape: Any, others: Any, fitting: list[int]) -> None:
    with FakeTensorMode():
        x = torch.empty(shape)
        parameters = [nn.Parameter(torch.empty(other)) for other in others] or [(64,)]
        changes = list(of_other_sizes(asked(func, x, *parameters)))
    assert shapes(changes, x)[0] == fitting


def test_as_many_elements_as_a_view_has() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 8, 512)
        assert [4, 12, 512] in shapes(list(of_other_sizes(asked(torch.Tensor.view, x, 4, 12, 8, 64))), x)


def test_what_follows_is_changed_first() -> None:
    with FakeTensorMode():
        x, scale = torch.empty(4, 64), torch.empty(32)
        assert next(iter(of_other_sizes(asked(torch.mul, x, scale)))) == Replacement(scale, (64,), torch.float32)


def test_both_sizes_of_a_mask() -> None:
    with FakeTensorMode():
        q, mask = torch.empty(4, 8, 12, 16), torch.empty(20, 24)
        question = asked(F.scaled_dot_product_attention, q, q, q, attn_mask=mask)
        assert [12, 12] in shapes(list(of_other_sizes(question)), mask)


def test_several_wrong_operands_one_after_the_other() -> None:
    with FakeTensorMode():
        x, mean, var = torch.empty(4, 64), torch.empty(32), torch.empty(96)
        question = asked(F.batch_norm, x, mean, var)
        assert [64] in shapes(list(of_other_sizes(question)), mean)


def test_ranks_with_the_sizes_that_go_with_them() -> None:
    with FakeTensorMode():
        index, x = torch.empty(8, 12, dtype=torch.int64), torch.empty(4, 20, 16)
        changes = list(of_other_ranks(asked(torch.gather, x, 1, index)))
    assert 3 in {len(shape) for shape in shapes(changes, index)}


def test_dtypes() -> None:
    with FakeTensorMode():
        tokens, table = torch.empty(4, 12), torch.empty(100, 64)
        changes = list(of_other_dtypes(asked(F.embedding, tokens, table)))
    assert torch.int64 in [change.dtype for change in changes if change.operand is tokens]


def test_dtypes_where_ranks_are_wrong_as_well() -> None:
    with FakeTensorMode():
        x, index = torch.empty(4, 20), torch.empty(4, 1, 16)
        changes = list(of_other_dtypes(asked(torch.gather, x, 1, index)))
    assert torch.int64 in [change.dtype for change in changes if change.operand is index]


def test_a_value_in_place_of_a_tensor() -> None:
    with FakeTensorMode():
        x, flag, pad = torch.empty(4, 64), torch.empty(8), torch.empty(8, 32)
        assert asked(torch.topk, x, 3, largest=flag).fitting_values([("flag", flag)]) == [("flag", False)]
        assert ("amounts", (1, 1)) in asked(F.pad, x, pad).fitting_values([("amounts", pad)])


def test_nothing_is_learned_where_the_call_runs() -> None:
    with FakeTensorMode():
        x = torch.empty(4, 64)
        question = Question(FailedCall(torch.relu, (x,), {}, ()), RuntimeError("something of the program's"))
        assert (question.refused, list(of_other_sizes(question))) == (None, [])


@pytest.mark.parametrize(("mode", "fits"), [("sum", True), ("mean", False)])
def test_ranks_and_dtypes_of_several_operands_at_once(mode: str, fits: bool) -> None:
    """Terms, offsets and weights are vectors, offsets are integers, and only a sum has weights."""
    with FakeTensorMode():
        terms, offsets = torch.zeros(2, 4, 8, dtype=torch.int64), torch.empty(12, 16, 64)
        weights, table = torch.empty(2, 4, 8), nn.Parameter(torch.empty(2000, 24))
        question = asked(F.embedding_bag, terms, table, offsets, mode=mode, per_sample_weights=weights)
        assert question.takes_together([terms, offsets, weights]) is fits
        assert not question.takes_together([terms, weights]), "the offsets stay as they are"
        assert not question.takes_together([terms]), "one operand is what `of_other_ranks` changes"
