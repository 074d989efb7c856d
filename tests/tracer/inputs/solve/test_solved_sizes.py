"""Sizes that are solved for: each function runs with few, and the search finds natural ones."""

from __future__ import annotations

import pytest
from conftest import TraceFixture

SOURCE = """
from functools import lru_cache
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

class Digits(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc = nn.Linear(9216, 128)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc(torch.flatten(x, 1))

class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 16, 16)
        self.first = nn.Parameter(torch.zeros(1, 1, 8))
        self.positions = nn.Parameter(torch.zeros(1, 65, 8))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.positions

class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.pool = nn.AvgPool2d(32)
        self.fc = nn.Linear(16, 10)

    def forward(self, x):
        x = self.pool(self.conv(x))
        return self.fc(x.view(x.size(0), -1))

class Projected(nn.Module):
    def __init__(self, width, out):
        super().__init__()
        self.inner = nn.Linear(width, 4 * width)
        self.outer = nn.Linear(4 * out, width)

    def forward(self, x):
        return self.outer(self.inner(x))

class Heads(nn.Module):
    def __init__(self, embed, count):
        super().__init__()
        assert embed % count == 0 and embed // count == 48
        self.proj = nn.Linear(embed, embed)

    def forward(self, x):
        return self.proj(x)

def thirds(x):
    q, k, v = x.chunk(3, -1)
    b, t, c = q.shape
    q, k, v = (y.reshape(b, t, 7, c // 7).transpose(1, 2) for y in (q, k, v))
    return (q @ k.transpose(-1, -2)).softmax(-1) @ v

def intersections(a, b):
    low = torch.max(a[:, None, :2], b[:, :2])
    high = torch.min(a[:, None, 2:], b[:, 2:])
    return (high - low).clamp(min=0).prod(-1)

def quarters(x):
    if x.shape[-1] % 6 != 2:
        raise ValueError("no")
    return x.unfold(-1, 2, 2).sum()

class Crossed(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys, self.marks = nn.Linear(16, 16), nn.Linear(4, 16)

    def forward(self, query, marks, memory):
        query = query.reshape(*query.shape[:2], 16) + self.marks(marks)
        keys = self.keys(memory).view(query.shape[0], memory.shape[1], 2, -1)
        return query.view(*query.shape[:2], 2, 8).transpose(1, 2) @ keys.permute(0, 2, 3, 1)

@lru_cache
def causal(size):
    return torch.from_numpy(np.triu(np.ones((size, size))) == 0)

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4 * 26 * 26, 8)

    def forward(self, x):
        return self.fc(self.conv(x * causal(x.shape[-1])).flatten(1))

class Coordinates(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 8)

    def forward(self, x, y, t):
        return self.fc(torch.cat([x, y, t], -1))

def in_parts(x):
    part = x.shape[0] // 100
    return torch.stack([x[i : i + part].sum() for i in range(0, x.shape[0], part)])

def of_one_size(x, y):
    assert x.size() == y.size()
    return (x - y).abs().sum()
"""


@pytest.mark.parametrize(
    ("name", "specs"),
    [
        pytest.param("Digits", ["f32[4, 1, 28, 28]"], id="an image for a linear layer behind convolutions"),
        pytest.param("Patches", ["f32[4, 3, 128, 128]"], id="an image for position embeddings"),
        pytest.param("Pooled", ["f32[4, 3, 64, 64]"], id="an image of which a pool leaves one point"),
        pytest.param("Projected", ["8", "8", "f32[4, 12, 8]"], id="numbers of a constructor that are equal"),
        pytest.param("Heads", ["384", "8", "f32[4, 8, 384]"], id="an equation of a constructor's numbers"),
        pytest.param("thirds", ["f32[8, 4, 336]"], id="chunks"),
        pytest.param("intersections", ["f32[12, 4]", "f32[8, 4]"], id="slices that are added"),
        pytest.param("quarters", ["f32[4, 128]"], id="a check of the code's own"),
        pytest.param("Crossed", ["f32[4, 8, 16]", "f32[4, 8, 4]", "f32[4, 24, 16]"], id="batches of several inputs"),
        pytest.param("Masked", ["f32[4, 1, 28, 28]"], id="a number that a function remembers"),
        pytest.param("Coordinates", ["f32[4, 8, 1]"] * 3, id="sizes that add up to a number"),
        pytest.param("in_parts", ["f32[128, 64]"], id="a size that vanishes"),
        pytest.param("of_one_size", ["f32[4, 64]", "f32[4, 64]"], id="two shapes that are compared"),
    ],
)
def test_sizes_that_fit(trace: TraceFixture, name: str, specs: list[str]) -> None:
    assert [given.spec for given in trace(SOURCE, name).trace.inputs] == specs
