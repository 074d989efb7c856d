"""Functions that cast to fewer bits themselves: what is right is what they compute without rounding."""

from __future__ import annotations

import pytest
from files import names_in, outputs

pytest_plugins = ["file_fixtures"]

SOURCE = """\
import torch


# fx: G=f32[24, 16]
def orthogonal(G, steps=3):
    X = G.half()
    X = X / (X.norm() + 1e-7)
    for _ in range(steps):
        A = X @ X.T
        X = 3.4445 * X + (-4.7750 * A + 2.0315 * A @ A) @ X
    return X


# fx: x=f16[4, 64], n=f32[64]
def mixed(x, n):
    return (x / 3).to(torch.bfloat16) * n


# fx: x=f16[4, 64]
def one_dtype(x):
    return torch.softmax(x.float(), -1).to(x.dtype)
"""
NAMES = names_in(SOURCE)


@pytest.fixture(scope="module")
def said(files: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    broken = files["mixed"].replace("x / 3.0 * n, mask", "x / 3.1 * n, mask")
    assert broken != files["mixed"]
    return outputs(tmp_path_factory.mktemp("casts"), {**files, "broken": broken})


@pytest.mark.parametrize("name", NAMES)
def test_kernels_that_round_less_are_right(name: str, said: dict[str, str]) -> None:
    assert "wrong" not in said[name]
    assert said[name].endswith("exit 0\n")


def test_what_is_off_by_more_is_wrong(said: dict[str, str]) -> None:
    assert "wrong  out" in said["broken"]
