"""What a body, and the errors that it raises, say of inputs: one function for each thing that is read."""

from __future__ import annotations

import pytest
from conftest import TraceFixture

SOURCE = """
from typing import Optional
import torch
import torch.nn.functional as F
from torch import einsum

def repeat(x, pattern, g):
    b, h, n, d = x.shape
    return x[:, :, None].expand(b, h, g, n, d).reshape(b, h * g, n, d)

def grouped(q, k, v):
    b, heads, n, d = q.shape
    _, kept, m, _ = k.shape
    if heads != kept:
        k = repeat(k, "b h n d -> b (h g) n d", g=heads // kept)
        v = repeat(v, "b h n d -> b (h g) n d", g=heads // kept)
    weights = einsum("b h i d, b h j d -> b h i j", q, k).softmax(-1)
    return einsum("b h i j, b h j d -> b h i d", weights, v)

def curved(x, k):
    count = x.size(-1) - 1
    rest = x.narrow(-1, 1, count)
    first = torch.sqrt(k + rest.pow(2).sum(-1)).unsqueeze(-1)
    return torch.cat((first, rest), dim=-1)

def parts(z):
    return z.real ** 2 + z.imag ** 2

def step(f, t, x: torch.Tensor, dt):
    half = f(t + dt / 2, x)
    return x + dt * f(t + dt, half)

def halves(x):
    return x.split([24, 40], -1)

def until(x: torch.Tensor, limit):
    scale = 1.0
    while limit < scale:
        scale = scale / 2
    return x * scale

def shifted(latents, stream):
    fused = latents[:, :-1] + stream[:, 1:]
    return torch.cat((stream[:, :1], fused), dim=-2)

def rotated(t, freqs):
    if t.ndim == 4 and freqs.ndim == 3:
        freqs = freqs[:, None]
    return t * freqs.cos()

def strided(x):
    x = x.contiguous().float()
    return x * x.size(3) + x.stride(2)

def alike(x, u):
    assert x.shape[-2:] == u.shape[-2:], "not alike"
    return (x * u).sum(-1)

def pieces(x, n):
    return torch.stack(x.chunk(n, dim=-1))

def corners(boxes, dims: tuple[int, ...]):
    left, top, right, bottom = boxes.unbind(dim=-1)
    return ((right - left) * (bottom - top)).sum(dims)

class Normed(torch.nn.Module):
    def __init__(self, width, norm_layer):
        super().__init__()
        self.norm = norm_layer(width, 1e-6)

    def forward(self, x):
        return self.norm(x)

def relaxed(x, start):
    assert x.dim() == start.dim() + 1
    for step in range(x.size(-1)):
        for _ in range(8):
            start = start * 0.5 + x[..., step]
    return start

def surrogate(log_probs, old_log_prob, keep_prob):
    return (log_probs - old_log_prob).exp() / keep_prob

def flattened(x, shape):
    return torch.reshape(x, shape).relu()

def scaled(x: torch.Tensor, y: torch.Tensor, span: Optional[float] = None):
    if span is None:
        span = max(x.max() - x.min(), y.max() - y.min())
    return (x - y) / span

def weighted(logits, target, weight):
    return F.cross_entropy(logits, target, weight=weight)

def normalized(x, mean, var, weight, bias):
    return F.batch_norm(x, mean, var, weight, bias)

def by_default(x, scale=torch.ones(4)):
    return torch.tanh(x * scale)
"""


@pytest.mark.parametrize(
    ("name", "found"),
    [
        pytest.param("grouped", ["f32[4, 8, 12, 64]", "f32[4, 4, 24, 64]", "f32[4, 4, 24, 96]"], id="an equation"),
        pytest.param("parts", ["c64[4, 64]"], id="complex numbers"),
        pytest.param("step", ["torch.add", "f32[4, 64]", "f32[4, 64]", "f32[4, 64]"], id="a function of two tensors"),
        pytest.param("halves", ["f32[4, 64]"], id="the sum of sizes"),
        pytest.param(
            "until",
            ["f32[4, 64]", "0.5"],
            id="a number that is compared",
            marks=pytest.mark.xfail(reason="a tensor of one element is compared as well, and tried first", strict=True),
        ),
        pytest.param("rotated", ["f32[4, 8, 12, 64]", "f32[4, 12, 64]"], id="a rank that a branch is for"),
        pytest.param("strided", ["f32[4, 8, 12, 64]"], id="an axis of what has the same shape"),
        pytest.param("weighted", ["f32[4, 64]", "i64[4]", "f32[64]"], id="a weight that has no gradient"),
        pytest.param("normalized", ["f32[4, 64]", *["f32[64]"] * 4], id="statistics that have no gradient"),
        pytest.param("by_default", ["f32[8, 4]", "f32[4]"], id="a tensor as default"),
        pytest.param("alike", ["f32[4, 64]", "f32[4, 64]"], id="an assertion about two shapes"),
        pytest.param("corners", ["f32[8, 4]", "-1"], id="an axis that is unbound, axes"),
        pytest.param(
            "Normed", ["8", "torch.nn.modules.normalization.LayerNorm", "f32[4, 12, 8]"], id="a layer's class"
        ),
        pytest.param("pieces", ["f32[4, 64]", "2"], id="a count"),
        pytest.param("surrogate", ["f32[4, 64]", "f32[4, 64]", "0.1"], id="probabilities and one probability"),
        pytest.param("relaxed", ["f32[12, 16, 5]", "f32[12, 16]"], id="a long loop over a dimension"),
        pytest.param("scaled", ["f32[4, 64]", "f32[4, 64]", "0.5"], id="a number, or else it is one of the values"),
    ],
)
def test_what_is_found(trace: TraceFixture, name: str, found: list[str]) -> None:
    assert [given.spec for given in trace(SOURCE, name).trace.inputs] == found


@pytest.mark.parametrize("name", ["curved", "shifted", "flattened"])
def test_something_is_found(trace: TraceFixture, name: str) -> None:
    assert {given.source for given in trace(SOURCE, name).trace.inputs} == {"search"}
