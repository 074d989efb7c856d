"""Files that take any batch and any length that the code allows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from files import generated, outputs

SOURCE = """\
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
    if x.shape[1] % 4 == 0 and x.shape[1] > 8:
        return x * 3
    return x.sin()


# fx: x=f32[4, 16, 8]
def squeezed(x):
    return x.sin().squeeze()


# fx: x=f32[5, 3]
def counted(x):
    return sum(x[i].sin() * i for i in range(x.shape[0]))


# fx: init(width=8), x=f32[2, 8, 6, 6]
class Normalized(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x):
        return self.norm(x).relu()
"""
NAMES = re.findall(r"^(?:def|class) (\w+)", SOURCE, re.M)


@pytest.fixture(scope="module")
def files(warm_torch: None) -> dict[str, str]:
    return generated(Path("/project/model.py"), SOURCE, NAMES, sizes="any")


@pytest.fixture(scope="module")
def compared(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return outputs(tmp_path_factory.mktemp("sizes"), files)


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
def test_results_and_gradients_are_right_for_other_sizes(name: str, compared: dict[str, str]) -> None:
    assert "wrong" not in compared[name] and compared[name].endswith("exit 0\n")
    assert ("=1)" in compared[name] or "=1," in compared[name]) == (name not in ("conditional", "squeezed", "counted"))


def test_sizes_for_which_the_code_does_something_else_are_refused(files: dict[str, str]) -> None:
    required = {name: re.findall(r"the kernels are for (.*?)[\"']\)", text) for name, text in files.items()}
    assert {name: conditions for name, conditions in required.items() if conditions} == {
        "conditional": ["x.shape[1] % 4 == 0", "x.shape[1] > 8", "x.shape[0] != 1"],
        "squeezed": ["x.shape[0] != 1", "x.shape[1] != 1"],
    }


def test_by_default_sizes_are_open_if_that_costs_no_launch(warm_torch: None) -> None:
    """Sums over an open number of rows are split into more kernels."""
    files = generated(Path("/project/model.py"), SOURCE, ["rms_norm", "gated"], sizes="auto")
    assert '("x", torch.float32, (4, 64), ' in files["rms_norm"]
    assert re.search(r'\("x", torch.float32, \("\w+", "\w+", 8\), ', files["gated"])


def test_operations_that_need_other_kernels_for_open_sizes_keep_their_own(files: dict[str, str]) -> None:
    assert "running_max" in files["attention"] and "aten.bmm" not in files["attention"]
