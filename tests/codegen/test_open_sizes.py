"""Files that take any batch and any length that the code allows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from files import generated, names_in, outputs

pytest_plugins = ["file_fixtures"]

SOURCE = """\
import math
import torch
import torch.nn.functional as F
from torch import nn


# fx: x=f32[4, 64], weight=f32[64]
def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


# fx: x=f32[4, 16, 8], y=f32[4, 16, 8]
def gated(x, y):
    B, T, C = x.shape
    return (x.sigmoid() * y).view(B * T, C), B


# fx: q=f32[2, 2, 64, 32], k=f32[2, 2, 64, 32], v=f32[2, 2, 64, 32]
def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# fx: ids=i64[3, 6], table=f32[11, 8]
def embedded(ids, table):
    return F.embedding(ids, table).relu()


# fx: x=f32[4, 16, 8]
def conditional(x):
    if x.shape[0] == 1:
        return x * 2
    if x.shape[1] % 4 == 0 and x.shape[1] > 8 and math.ceil(x.shape[1] / 3) == 6:
        return x * 3
    return x.sin()


# fx: x=f32[6, 3], y=f32[5]
def compared(x, y):
    return torch.where(torch.arange(y.shape[0]) < x.shape[0] // 2, y, 0.0)


# fx: ids=i64[6, 3], table=f32[11, 8]
def bagged(ids, table):
    return F.embedding_bag(ids, table, mode="mean").relu()


# fx: q=f32[2, 64, 16], k=f32[2, 64, 16], v=f32[2, 64, 16], near=f32[8]
def banded(q, k, v, near):
    places = torch.arange(q.shape[1])
    keep = (places[None, :] - places[:, None]).abs() < near.shape[0] // 2
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep)


# fx: x=f32[4, 16, 8]
def squeezed(x):
    return x.sin().squeeze()


# fx: x=f32[5, 3]
def counted(x):
    return sum(x[i].sin() * i for i in range(x.shape[0]))


# fx: x=f32[2, 3, 6, 6], weight=f32[4, 3, 3, 3]
def convolved(x, weight):
    return F.conv2d(x, weight, padding=1).relu()


# fx: init(width=8), x=f32[2, 8, 6, 6]
class Normalized(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.norm(x).relu()
"""
NAMES = names_in(SOURCE)
SIZES = "any"

BY_DEFAULT = """\
import torch
import torch.nn.functional as F
from torch import nn


# fx: x=f32[4, 64], weight=f32[64]
def rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


# fx: x=f32[4, 16, 8], y=f32[4, 16, 8]
def gated(x, y):
    return x.sigmoid() * y


# fx: x=f32[4, 16, 8], places=f32[16]
@torch.no_grad()
def placed(x, places):
    return x.relu() + places[:, None]


# fx: x=f32[6, 64, 16]
@torch.no_grad()
def standardized(x):
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)


# fx: q=f32[2, 2, 64, 32], k=f32[2, 2, 64, 32], v=f32[2, 2, 64, 32]
def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


# fx: x=f32[16, 4, 64, 64]
@torch.no_grad()
def normalized(x):
    return F.batch_norm(x, None, None, training=True)


# fx: a=f32[6, 24, 16], x=f32[6, 24, 16]
def decayed(a, x):
    h, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.size(1)):
        h = torch.sigmoid(a[:, t]) * h + x[:, t]
        out.append(h)
    return torch.stack(out, 1)


# fx: x=f32[2, 3, 8, 8], weight=f32[4, 3, 3, 3]
def pooled(x, weight):
    return F.conv2d(x, weight, stride=2, padding=1).relu().mean((2, 3))


class Block(nn.Module):
    def __init__(self, dim=8, hidden=16):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))
"""


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("rms_norm", ["x f32[x_0, 64]", "weight f32[64]"]),
        ("gated", ["x f32[x_0, x_1, 8]", "y f32[x_0, x_1, 8]"]),
        ("attention", ["q f32[q_0, q_1, q_2, 32]", "k f32[q_0, q_1, v_2, 32]", "v f32[q_0, q_1, v_2, 32]"]),
        ("embedded", ["ids i64[ids_0, ids_1]", "table f32[table_0, 8]"]),
        ("counted", ["x f32[5, 3]"]),
        ("Normalized", ["x f32[x_0, 8, x_2, 6]"]),
    ],
)
def test_sizes_that_the_code_leaves_open(name: str, inputs: list[str], files: dict[str, str]) -> None:
    described = files[name].split('"""')[1]
    assert re.findall(r"^    (?!self)(\S+) +(\S.*)$", described, re.M) == [tuple(i.split(" ", 1)) for i in inputs]


@pytest.mark.parametrize("name", NAMES)
def test_results_and_gradients_are_right_for_other_sizes(name: str, said: dict[str, str]) -> None:
    assert "wrong" not in said[name] and said[name].endswith("exit 0\n")
    assert ("=1)" in said[name] or "=1," in said[name]) == (
        name not in ("conditional", "squeezed", "bagged", "counted")
    )


def test_offsets_into_large_tensors_have_64_bits(files: dict[str, str], tmp_path: Path) -> None:
    wide = {n: t.replace("INDEX: tl.constexpr = tl.int32", "INDEX: tl.constexpr = tl.int64") for n, t in files.items()}
    assert {n for n in NAMES if wide[n] != files[n]} == set(NAMES) - {"counted"}
    assert all('blocks["INDEX"] = tl.int64' in files[n] for n in NAMES if wide[n] != files[n])
    assert all("wrong" not in text and text.endswith("exit 0\n") for text in outputs(tmp_path, wide).values())


def test_sizes_for_which_the_code_does_something_else_are_refused(files: dict[str, str]) -> None:
    required = {name: re.findall(r"the kernels are for ([a-z].*?)[\"']\)", text) for name, text in files.items()}
    assert {name: conditions for name, conditions in required.items() if conditions} == {
        "convolved": ["x.shape[2] + 2 >= weight.shape[2]"],
        "conditional": [
            *("x.shape[1] % 4 == 0", "x.shape[1] > 8", "math.ceil(x.shape[1] / 3) == 6", "x.shape[0] != 1"),
        ],
        "squeezed": ["x.shape[0] != 1", "x.shape[1] != 1"],
    }


@pytest.fixture(scope="module")
def defaults(warm_torch: None) -> dict[str, str]:
    names = names_in(BY_DEFAULT)
    return generated(Path("/project/model.py"), BY_DEFAULT, names, sizes="auto")


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        pytest.param("gated", ["x f32[x_0, x_1, 8]", "y f32[x_0, x_1, 8]"], id="each element is its own"),
        pytest.param("placed", ["x f32[x_0, 16, 8]", "places f32[16]"], id="an index is divided by the length"),
        pytest.param("standardized", ["x f32[x_0, 64, 16]"], id="each element needs all of the length"),
        pytest.param(
            "attention",
            ["q f32[q_0, q_1, 64, 32]", "k f32[q_0, q_1, 64, 32]", "v f32[q_0, q_1, 64, 32]"],
            id="a template pads operands to the length",
        ),
        pytest.param("normalized", ["x f32[16, 4, 64, 64]"], id="a sum is split for a number of channels"),
        pytest.param("rms_norm", ["x f32[4, 64]", "weight f32[64]"], id="a gradient is summed over the batch"),
        pytest.param("decayed", ["a f32[a_0, 24, 16]", "x f32[a_0, 24, 16]"], id="a loop reads all of the length"),
        pytest.param("pooled", ["x f32[x_0, x_1, 8, 8]", "weight f32[4, x_1, 3, 3]"], id="a mean over an area"),
    ],
)
def test_by_default_sizes_are_open_where_indices_stay_plain(
    name: str, inputs: list[str], defaults: dict[str, str]
) -> None:
    described = defaults[name].split('"""')[1]
    assert re.findall(r"^    (?!self)(\S+) +(\S+\[.*)$", described, re.M) == [tuple(i.split(" ", 1)) for i in inputs]
    is_open = any("_" in text for text in inputs)
    title = "Made for these sizes, and for any where one has a name" if is_open else "Made for these sizes alone"
    assert title in described


def test_guessed_sizes_are_open_and_tiled_like_larger_ones(defaults: dict[str, str]) -> None:
    """The guess is a batch of 4 with 8 rows, fewer than a program takes."""
    assert re.search(r"^    x +f32\[x_0, x_1, 8\]$", defaults["Block"], re.M)
    assert "ROWS=128" in defaults["Block"]


@pytest.mark.release
def test_other_sizes_are_right_by_default(defaults: dict[str, str], tmp_path: Path) -> None:
    for name, output in outputs(tmp_path, defaults).items():
        assert "wrong" not in output and output.endswith("exit 0\n"), name


def test_operations_that_need_other_kernels_for_open_sizes_keep_their_own(files: dict[str, str]) -> None:
    assert "running_max" in files["attention"] and "aten.bmm" not in files["attention"]


def test_regions_take_sizes_that_only_their_numbers_use(warm_torch: None, tmp_path: Path) -> None:
    source = """\
import torch


# fx: x=f32[6, 8], w=f32[8, 8]
def weighted(x, w):
    means = (x @ w).sum(0) / x.shape[0]
    return (means @ w) * x.shape[0] + x.shape[0] ** 0.5
"""
    texts = generated(Path("/project/model.py"), source, ["weighted"], SIZES, "all")
    assert re.search(r"_compiled\(.*\bx_0\)", texts["weighted"])
    output = outputs(tmp_path, texts)["weighted"]
    assert "right  gradient of w (x_0=7)" in output and output.endswith("exit 0\n"), output


def test_steps_of_a_loop_take_one_kernel_for_an_open_batch(defaults: dict[str, str]) -> None:
    """Its parts `x[:, t]` are slices of all of the batch; their gradients are joined for any batch."""
    assert defaults["decayed"].count("@triton.jit") == 2
