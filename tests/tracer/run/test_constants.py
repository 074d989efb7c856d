"""Values of what depends on no input: whoever asks for one has it; what is random, trained or given has none."""

from __future__ import annotations

from textwrap import indent

import pytest
from conftest import TraceFixture
from inline_snapshot import snapshot

from fx_lsp.model import Failure

PRELUDE = "import numpy as np\nimport torch\nfrom torch import nn\n"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("mask = torch.ones(4, 4).tril()\nreturn x * int(mask.sum())", id="a mask is counted"),
        pytest.param(
            "mask = torch.zeros(4)\nmask[2:] = 1\nreturn x[:, : int(mask.sum())]", id="written through a view"
        ),
        pytest.param("kept = torch.nonzero(torch.arange(8) % 2)\nreturn x[:, kept[:, 0]]", id="what is not zero"),
        pytest.param("return x[:, torch.arange(8) % 2 == 0]", id="a mask picks columns"),
        pytest.param("return torch.split(x, torch.tensor([1, 3]).tolist())", id="a list"),
        pytest.param("return x * np.cumsum(torch.arange(4).numpy())[-1].item()", id="an array"),
        pytest.param("betas = torch.from_numpy(np.linspace(0, 1, 8))\nreturn x * float(betas.max())", id="of an array"),
        pytest.param("if torch.equal(torch.eye(2), torch.ones(2, 2)):\n    return x\nreturn x + 1", id="compared"),
        pytest.param("return x if torch.tensor(3.0) > 2 else None", id="a branch"),
    ],
)
def test_values_that_are_there(trace: TraceFixture, body: str) -> None:
    assert trace(_function(body)).trace.stages


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("return x * int((torch.rand(4) > 0.5).sum())", id="random"),
        pytest.param("return x[:, : int(torch.empty_like(torch.ones(4)).sum())]", id="not written yet"),
        pytest.param(
            "y = torch.zeros(4)\ny += x[:, 0]\nreturn x if y.sum() > 1 else x * 2", id="written to from an input"
        ),
        pytest.param("y = torch.zeros(4)\ny[:1] = x[0, :1]\nreturn x if y.sum() > 1 else x * 2", id="through a view"),
        pytest.param("return x if nn.Parameter(torch.zeros(1)) > 1 else x * 2", id="trained"),
    ],
)
def test_values_that_are_not(trace: TraceFixture, body: str) -> None:
    outcome = trace(_function(body)).reply.outcome
    told = () if isinstance(outcome, Failure) else (*outcome.notes, *(remark.message for remark in outcome.remarks))
    ways = ("depend on the values", "depends on a tensor's value", "random values")
    assert isinstance(outcome, Failure) or any(way in " ".join(told) for way in ways)


def test_an_index_out_of_bounds_is_told(trace: TraceFixture) -> None:
    failure = trace(_function("table = torch.arange(8)\nreturn x * table[torch.tensor([8])]")).failure
    assert (failure.severity, failure.message) == (
        "error",
        "index 8 is out of bounds for dimension 0 with size 8 (self: i64[8], idx: i64[1])",
    )


def _function(body: str) -> str:
    return f"{PRELUDE}\n# fx: x=f32[4, 8]\ndef f(x):\n{indent(body, '    ')}\n"


DRAWN = """
text = torch.arange(1000)

def windows(count=4, size=8):
    starts = torch.randint(len(text) - size, (count,))
    return torch.stack([text[i : i + size] for i in starts]).to(torch.float32)
"""


def test_integers_are_drawn_the_same_each_time(trace: TraceFixture) -> None:
    traced = trace(PRELUDE + DRAWN, "windows")
    assert traced.trace.outputs == ("f32[4, 8]",)
    (remark,) = traced.trace.remarks
    assert (traced.at(remark.span), remark.message) == snapshot(
        ("text[i : i + size]", "the value of `text[i:i + size]` is assumed: 165, random")
    )
    assert traced.graph("inference") == trace(PRELUDE + DRAWN, "windows").graph("inference")


MASKED = """
def attend(scores, lengths):
    longest = lengths.max().item()
    mask = torch.arange(longest)[None] < lengths[:, None]
    return scores.masked_fill(~mask, 0.0)

def parts(x, lengths):
    return torch.stack([row[:n].sum() for row, n in zip(x, lengths.tolist())])

def part(x, index):
    return x[index[0] : index[1]] * x.new_ones(int(index.max()), 1)

def looked_up(table, index):
    return table[index.numpy().tolist()] * F.one_hot(index).sum()
"""


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "attend",
            snapshot(
                [
                    "scores: f32[4, 64] ()",
                    "lengths: i64[4] (sizes that fit, assumed values: 64, …)",
                    "the value of `lengths.max().item()` is assumed: 64",
                    "f32[4, 64]",
                ]
            ),
        ),
        (
            "parts",
            snapshot(
                [
                    "x[0]: f32[4, 64] ()",
                    "x[1]: f32[4, 64] ()",
                    "lengths: i64[8] (assumed values: 64, …)",
                    "the value of `lengths.tolist()` is assumed: 64, 64, 64, 64, …",
                    "f32[2]",
                ]
            ),
        ),
        (
            "part",
            snapshot(
                [
                    "x: f32[4, 64] ()",
                    "index: i64[8] (assumed values: 0, 1, …)",
                    "the value of `x[index[0]:index[1]]` is assumed: 0",
                    "the value of `int(index.max())` is assumed: 1",
                    "f32[1, 64]",
                ]
            ),
        ),
        (
            "looked_up",
            snapshot(
                [
                    "table: f32[4, 64] ()",
                    "index: i64[8] (assumed values: 0, 1, …)",
                    "the value of `index.numpy()` is assumed: 0, 1, 0, 1, …",
                    "the value of `F.one_hot(index)` is assumed: 1",
                    "f32[8, 64]",
                ]
            ),
        ),
    ],
)
def test_whole_numbers_that_are_guessed_have_values(trace: TraceFixture, name: str, told: list[str]) -> None:
    traced = trace(f"{PRELUDE}import torch.nn.functional as F\n{MASKED}", name)
    shown = [f"{given.name}: {given.spec} ({given.detail})" for given in traced.trace.inputs]
    assert [*shown, *(remark.message for remark in traced.trace.remarks), *traced.trace.outputs] == told
