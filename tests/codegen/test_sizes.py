"""Sizes that are known only when a function is called: they have names, and may be returned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from files import generated

pytest_plugins = ["file_fixtures"]

SOURCE = """\
import torch


# fx: x=f32[B, T, 64]
def sizes(x):
    y = x.transpose(0, 1).reshape(-1, 32)
    return (y * 2).cos(), y.shape[0], x.shape[0] / 2 + 1


# fx: x=f32[N, 64]
def whole(x):
    return x.sum() / x.shape[0]


# fx: N=f32[N, 64]
def named_as_its_size(N):
    return N.softmax(-1) * N.shape[0], N.size(0)


# fx: x=f32[rows, cols], y=f32[cols, k]
def named_as_indices(x, y):
    return torch.softmax(x * 2, -1) + x.sum(0), torch.relu(x @ y)


# fx: x=f32[B, S, 24], bias=f32[24]
def summed_columns(x, bias):
    return torch.relu(x + bias), x.amax((0, 1)), x.amin((0, 1))


# fx: x=f32[B, 30]
def summed_as_a_whole(x):
    return (x * x).mean(), x.sigmoid().sum(), x.amax()


# fx: x=f32[B, 3, 4, 4], weight=f32[3]
def normalized_over_batches(x, weight):
    return torch.nn.functional.batch_norm(x, None, None, weight, training=True), x.std()


# fx: x=f32[B, 24], weight=f32[24], bias=f32[24]
def normalized(x, weight, bias):
    return torch.nn.functional.layer_norm(x, (24,), weight, bias)


# fx: x=f32[8, B, 5]
def stepped(x):
    v, found = torch.zeros_like(x[0]), []
    for t in range(len(x)):
        v = 0.9 * v + x[t]
        found.append(v.tanh())
    return torch.stack(found)


# fx: x=f32[B, N]
def cumulated(x):
    return x.cumsum(0) * x.amax(-1, keepdim=True)


# fx: x=f32[B, 8]
def some_rows(x):
    kept = x[x[:, 0] > 0]
    return kept * 2, kept.shape[0]
"""

COMPARED = {
    "sizes": ["out", "gradient of x"],
    "whole": ["out", "gradient of x"],
    "named_as_its_size": ["out", "gradient of N"],
    "named_as_indices": ["out[0]", "out[1]", "gradient of x", "gradient of y"],
    "some_rows": ["out", "gradient of x"],
    "stepped": ["out", "gradient of x"],
    "cumulated": ["out", "gradient of x"],
    "summed_columns": ["out[0]", "out[1]", "out[2]", "gradient of x", "gradient of bias"],
    "summed_as_a_whole": ["out[0]", "out[1]", "out[2]", "gradient of x"],
    "normalized_over_batches": ["out[0]", "out[1]", "gradient of x", "gradient of weight"],
    "normalized": ["out", "gradient of x", "gradient of weight", "gradient of bias"],
}


def test_files_compute_what_the_originals_do(said: dict[str, str]):
    for name, compared in COMPARED.items():
        lines = [re.split(r"  | \((?=\w+=)", line)[:2] for line in said[name].splitlines() if "off by" in line]
        assert {verdict for verdict, _ in lines} == {"right"}, name
        assert list(dict.fromkeys(what for _, what in lines)) == list(compared), name
        assert said[name].endswith("exit 0\n")


def test_sizes_have_the_names_that_the_user_gave_them(files: dict[str, str]):
    text = files["sizes"]
    assert "    B, T = x.shape[:2]\n" in text
    assert "return out_0, x.shape[0] * x.shape[1] * 2, x.shape[0] / 2 + 1.0\n" in text
    assert "    kept = torch.ops.aten.index.Tensor(x, [gt])\n    num_nonzero = kept.shape[0]\n" in files["some_rows"]
    for name in COMPARED:
        assert not re.search(r"\b[su]\d+\b", files[name])


@pytest.mark.parametrize("name", ["summed_columns", "summed_as_a_whole", "normalized"])
def test_what_sums_many_elements_is_not_one_program(files: dict[str, str], name: str):
    kernels = re.findall(r"^def \w+_kernel\w*\(", files[name], re.M)
    assert sum("_partial" in k for k in kernels) >= 1
    alone = re.findall(r", \(1,\)\)\(\s*(\w+)", files[name])
    assert not {"x", "grad_out", "out_0"} & {*alone}


def test_offsets_in_loops_have_64_bits_where_they_may_need_them(files: dict[str, str]):
    loops = re.findall(r"tl\.range\(0, M, .*\n +rows = (.*)", files["cumulated"])
    assert loops and set(loops) == {"(start + tl.arange(0, ROWS)).to(INDEX)[:, None]"}


def test_steps_of_any_size_are_a_loop(files: dict[str, str]):
    forward = files["stepped"].partition("def stepped_backward_kernel")[0]
    assert "    B = tl.cast(B, INDEX)\n" in forward
    assert "tl.load(x_ptr + cols + step * B * 5, mask=mask)" in forward
    assert "= libdevice.tanh(vs[7 - step])" in files["stepped"]


def test_one_choice_of_blocks_is_for_all_values_of_a_size(files: dict[str, str]):
    assert set(re.findall(r"key=\[(.*)\]", files["cumulated"])) == {""}
    assert "tl.load(x_ptr + rows * N + cols, mask=" in files["cumulated"]


def test_a_size_that_no_tensor_of_backward_has_is_kept(files: dict[str, str]):
    assert "        ctx.size_N = size_N\n" in files["whole"]
    assert "        size_N = ctx.size_N\n" in files["whole"]


def test_sizes_in_kernels(warm_torch: None):
    source = """\
import torch
import torch.nn.functional as F


# fx: x=f32[B, T, T]
def distances(x):
    size = x.shape[1]
    near = torch.arange(size) * 2 < size
    return (x - x.transpose(1, 2)).softmax(-1), near, F.pad(x, (1, 1), mode="reflect")
"""
    text = generated(Path("/project/model.py"), source, ["distances"])["distances"]
    assert "* T * T" in text
    assert "T ** 2" not in text
