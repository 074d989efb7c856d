"""Inputs of functions whose ranks nothing fixes look like what one would have passed."""

from __future__ import annotations

import time
from itertools import count

import pytest
from conftest import TraceFixture
from inline_snapshot import snapshot

HEAD = "import torch\nimport torch.nn.functional as F\n\n"


def inputs(trace: TraceFixture, source: str, name: str = "f") -> list[str]:
    return [f"{i.name}: {i.spec}" for i in trace(HEAD + source, name).trace.inputs]


ATTENTION = """
def f(a, b, c):
    scores = a @ b.transpose(-2, -1) / a.size(-1) ** 0.5
    weights = F.softmax(scores, dim=-1)
    return F.dropout(weights, 0.1) @ c
"""


def test_attention_has_a_batch_and_heads(trace: TraceFixture) -> None:
    assert inputs(trace, ATTENTION) == snapshot(
        ["a: f32[4, 8, 12, 64]", "b: f32[4, 8, 24, 64]", "c: f32[4, 8, 24, 96]"]
    )
    functions = ATTENTION.replace("a @ b.transpose(-2, -1)", "torch.matmul(a, b.mT)").replace("@ c", ".matmul(c)")
    assert inputs(trace, functions.replace("dropout(weights, 0.1) .", "dropout(weights, 0.1).")) == inputs(
        trace, ATTENTION
    )


def test_what_the_code_says_counts_more(trace: TraceFixture) -> None:
    shaped = ATTENTION.replace("    scores", "    n, t, d = a.shape\n    scores")
    assert inputs(trace, shaped) == snapshot(["a: f32[4, 8, 64]", "b: f32[4, 16, 64]", "c: f32[4, 16, 96]"])
    plain = ATTENTION.replace("b.transpose(-2, -1)", "b.T")
    assert inputs(trace, plain) == snapshot(["a: f32[4, 64]", "b: f32[8, 64]", "c: f32[8, 96]"])


@pytest.mark.parametrize(
    ("call", "rank"),
    [
        ("F.interpolate(x, scale_factor=2)", 4),
        ("F.max_pool2d(x, 2)", 4),
        ("F.avg_pool1d(x, 2)", 3),
        ("F.pixel_unshuffle(x, 2)", 4),
        ("torch.atleast_2d(x) + 1", 2),
    ],
)
def test_functions_of_images(trace: TraceFixture, call: str, rank: int) -> None:
    (spec,) = inputs(trace, f"def f(x):\n    return F.relu({call})\n")[:1]
    assert spec.count(",") + 1 == rank


CACHE = """
class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("kept", torch.zeros(64, 32))

    def update(self, places, rows):
        return self.kept.index_copy(0, places, rows)

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cache, self.words = Cache(), torch.nn.Embedding(100, 32)

    def forward(self, ids, places):
        return self.remember(ids.view(-1), places)

    def remember(self, ids, places):
        return self.cache.update(places, self.words(ids))
"""


def test_what_methods_and_parts_do_with_an_input_says_what_it_is(trace: TraceFixture) -> None:
    found = trace(HEAD + CACHE, "Model").trace.inputs
    assert [f"{i.name}: {i.spec}" for i in found] == snapshot(["ids: i64[4, 8]", "places: i64[32]"])


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("scale[t, None, None, None]", snapshot(["x: f32[4, 8, 64, 64]", "t: i64[4]"])),
        ("scale[t][:, None, None]", snapshot(["x: f32[4, 8, 64]", "t: i64[4]"])),
        ("scale[t].view(-1, 1, 1, 1, 1)", snapshot(["x: f32[4, 8, 12, 16, 64]", "t: i64[4]"])),
        ("scale[t].view(-1, 1)", snapshot(["x: f32[4, 64]", "t: i64[4]"])),
    ],
)
def test_what_is_stretched_over_an_input_says_how_many_dimensions_that_has(
    trace: TraceFixture, scale: str, expected: list[str]
) -> None:
    source = f"""
def f(x, t: torch.Tensor):
    scale = torch.linspace(0, 1, 100)
    return {scale} * x
"""
    assert inputs(trace, source) == expected


ONE_HOT = """
from torch import nn

def one_hot(places, count):
    (batch,) = places.shape
    return torch.zeros(batch, count).scatter_(1, places.unsqueeze(1), 1)

class Transition(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(12, 8)

    def forward(self, state, action):
        return self.fc(torch.cat([state, one_hot(action, 4)], 1))

class World(nn.Module):
    def __init__(self):
        super().__init__()
        self.transition = Transition()

    def forward(self, state, action):
        return self.transition(state, action) - state
"""


def test_what_functions_do_that_a_part_hands_an_input_to(trace: TraceFixture) -> None:
    found = trace(HEAD + ONE_HOT, "World").trace.inputs
    assert [f"{i.name}: {i.spec} {i.detail}" for i in found] == snapshot(
        ["state: f32[12, 8] sizes that fit", "action: i64[12] "]
    )


TIMED = """
from torch import nn

class Timed(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.time, self.last = nn.Conv1d(2, 32, 3), nn.Linear(64, 32), nn.Conv1d(32, 2, 3)

    def forward(self, noisy, sigma):
        angles = sigma[:, None] * torch.linspace(0, 6, 32)
        scale = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        return self.last(self.first(noisy) * scale[:, :, None])
"""
SCALED = """
from torch import nn

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3)

    def forward(self, x, sigma):
        return self.conv(x * (1 + sigma**2).sqrt()[:, None, None, None])
"""


@pytest.mark.parametrize(
    ("source", "name", "expected"),
    [
        (TIMED, "Timed", snapshot(["noisy: f32[4, 2, 64]", "sigma: f32[4]"])),
        (SCALED, "Scaled", snapshot(["x: f32[4, 3, 64, 64]", "sigma: f32[4]"])),
    ],
)
def test_an_input_has_the_rank_with_which_what_is_computed_of_it_meets_another(
    trace: TraceFixture, source: str, name: str, expected: list[str]
) -> None:
    assert inputs(trace, source, name) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x[keep > 0.5].sum()", "f32[4, 64]"),
        ("mask = keep > 0.5\n    return (x * mask).sum()", "f32[4, 64]"),
        ("late = keep > 0.5\n    return torch.sin(x) if late else torch.cos(x)", "0.5"),
        ("return torch.sin(x) if keep > 0.5 else torch.cos(x)", "0.5"),
        ("return torch.sin(x)[keep:-keep].mean()", "1"),
    ],
)
def test_what_is_compared_is_a_number_where_its_truth_decides_and_a_tensor_elsewhere(
    trace: TraceFixture, body: str, expected: str
) -> None:
    assert inputs(trace, f"def f(x, keep):\n    {body}\n")[1] == f"keep: {expected}"


RAISED = """
def raised(t):
    return t.float() if t.dtype not in (torch.float32, torch.float64) else t

def distance(first: torch.Tensor, second: torch.Tensor):
    first, second = raised(first), raised(second)
    x, y, w, h = first.unbind(-1)
    a, b, c, d = second.unbind(-1)
    return (x - a) ** 2 + (y - b) ** 2 + (w - c) ** 2 + (h - d) ** 2

def overlap(first: torch.Tensor, second: torch.Tensor):
    first, second = raised(first), raised(second)
    x, y = first.T
    a, b = second.T
    common = torch.zeros_like(x)
    meets = (x < b) & (a < y)
    common[meets] = (torch.min(y, b) - torch.max(x, a))[meets]
    return common.sum()
"""


@pytest.mark.parametrize(("name", "width"), [("distance", 4), ("overlap", 2)])
def test_a_tensor_has_as_many_parts_as_what_is_computed_of_it_is_unpacked_into(
    trace: TraceFixture, name: str, width: int
) -> None:
    traced = trace(HEAD + RAISED, name)
    specs = [i.spec for i in traced.trace.inputs]
    assert len(set(specs)) == 1 and specs[0].startswith("f32[") and specs[0].endswith(f", {width}]")
    assert "backward" in [stage.name for stage in traced.trace.stages]


@pytest.mark.parametrize(("source", "name"), [(TIMED, "Timed"), (ATTENTION, "f")])
def test_what_is_found_depends_on_no_clock(
    trace: TraceFixture, source: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = inputs(trace, source, name)
    seconds = count(0, 10)
    for clock in ("process_time", "perf_counter", "monotonic"):
        monkeypatch.setattr(time, clock, lambda: float(next(seconds)))
    assert inputs(trace, source, name) == expected
