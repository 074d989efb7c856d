"""What a GPU can launch: grids within the limits of their axes, loops within shared memory."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from inline_snapshot import snapshot
from interpreted import captured, generated, wrong

from fx_lsp.choices import Choices
from fx_lsp.codegen.ir import tile


def attention(q, k, v):
    keep = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    return (q @ k.mT * 0.25).masked_fill(~keep, float("-inf")).softmax(-1) @ v


def biased(q, k, v):
    return (q @ k.mT * 0.25 + v[:, :, :1]).softmax(-1) @ v


def transposed(x):
    return x.transpose(1, 2).contiguous() * 2


def columns(x):
    return x.sum(1)


def products(a, b):
    return F.gelu(a @ b)


GRIDS = {
    "attention": (attention, [(5, 70, 16)] * 3),
    "biased": (biased, [(5, 70, 16)] * 3),
    "transposed": (transposed, [(3, 130, 170)]),
    "columns": (columns, [(3, 40, 170)]),
    "products": (products, [(5, 40, 33), (5, 33, 50)]),
}


@pytest.mark.parametrize("name", GRIDS)
@pytest.mark.parametrize("most", [1, 2, 65535])
def test_the_dimension_with_the_most_programs_comes_first(name: str, most: int, monkeypatch: pytest.MonkeyPatch):
    """Only the first axis of a grid takes more than 65,535."""
    monkeypatch.setattr(tile, "MAX_PROGRAMS", most)
    function, sizes = GRIDS[name]
    assert wrong(function, [torch.randn(size, requires_grad=True) for size in sizes]) == []


def test_there_may_be_many_batches() -> None:
    inputs = [torch.empty(70_000, 64, 16) for _ in range(3)]
    text = generated(captured(attention, inputs)).text
    assert re.findall(r"launch\(\w+, (?:lambda meta: )?(.*70000.*)\)\($", text, re.M) == snapshot(
        ["(70000, triton.cdiv(64, 64))"]
    )


@pytest.mark.parametrize(("width", "stages"), [(1024, 3), (8192, 3), (16384, 2)])
def test_no_more_rows_are_under_way_than_shared_memory_has_room_for(width: int, stages: int) -> None:
    inputs = [torch.empty(64, width, requires_grad=True), torch.empty(width, requires_grad=True)]
    choices = Choices(inductor="none")
    text = generated(captured(lambda x, w: F.layer_norm(x, (width,), w), inputs, choices), choices=choices).text
    assert set(re.findall(r"num_stages=(\d)\)", text)) == {str(stages)}
