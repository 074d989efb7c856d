"""Which inputs of generated files have gradients, and what is said of those that have none."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from files import names_in, outputs, script

pytest_plugins = ["file_fixtures"]

SOURCE = """\
import torch
import torch.nn.functional as F
from torch import nn


# fx: x=f32[8, 16], w=f32[16, 32]
def gated(x, w):
    return torch.tanh(x @ w)


# fx: x=f32[6, 5], y=f32[6, 5]
def floored(x, y):
    return torch.sin(x) // y


# fx: init(dim=5), x=f32[6, 5]
class Stepped(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.at = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        return torch.heaviside(x - self.at, self.at)


# fx: logits=f32[6, 5], target=i64[6], weight=f32[5]
def weighted(logits, target, weight):
    return F.cross_entropy(logits, target, weight=weight)


# fx: x=f32[6, 5], mean=f32[5], var=f32[5], weight=f32[5], bias=f32[5]
def normalized(x, mean, var, weight, bias):
    return F.batch_norm(x, mean, var, weight, bias, training=True)


# fx: logits=f32[6, 5], target=f32[6, 5]
def probable(logits, target):
    return F.binary_cross_entropy(logits.sigmoid(), target)


# fx: x=f32[6, 5], w=torch.randn(5)
def frozen(x, w):
    return torch.sigmoid(x * w)


# fx: x=f32[6, 5]
def by_default(x, scale=torch.full((5,), 2.0), shift=1.0):
    return torch.sigmoid(x * scale + shift)
"""
NAMES = names_in(SOURCE)


def test_they_compute_what_the_originals_do(said: dict[str, str]) -> None:
    assert {name: text for name, text in said.items() if not text.endswith("exit 0\n")} == {}


@pytest.mark.parametrize(
    ("name", "without"),
    [
        ("gated", []),
        ("floored", ["x", "y"]),
        ("Stepped", ["self.at", "x"]),
        ("weighted", ["weight"]),
        ("normalized", ["mean", "var"]),
        ("frozen", ["w"]),
        ("by_default", ["scale"]),
    ],
)
def test_what_has_no_gradient_is_refused_where_one_is_asked_for(
    files: dict[str, str], name: str, without: list[str]
) -> None:
    table = re.search(r"^INPUTS = (\[.*?\])$", files[name], re.M | re.S)
    assert table is not None
    rows = ast.literal_eval(re.sub(r"torch\.\w+", "None", table[1]))
    assert [name for name, _dtype, _sizes, _strides, gradient, _copied in rows if not gradient] == without


def test_second_derivatives_are_refused(files: dict[str, str], tmp_path: Path) -> None:
    lines = """
args, _ = arguments(0, "cpu")
out = gated(*args)
first, = torch.autograd.grad(out.sum(), args[0], retain_graph=True)
try:
    torch.autograd.grad(out.sum(), args[0], create_graph=True)
except RuntimeError as error:
    print(error)
"""
    said = outputs(tmp_path, {"twice": script(files["gated"], lines)})["twice"]
    assert said == "gated does not support create_graph=True\n"
