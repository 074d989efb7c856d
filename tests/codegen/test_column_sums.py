"""Sums of columns: whole pages of memory at a time, and those that belong together in one kernel."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from interpreted import captured, checked, floats, generated, rotated, wrong

from fx_lsp.codegen.ir.kernel import KernelLaunch


def test_axes_that_follow_on_each_other_are_summed_as_one() -> None:
    """Each of 6 rows of 8 would be a run of 32 bytes; together they are one of 192."""

    def turned(x, cos, sin):
        return x * cos + rotated(x) * sin

    inputs = [floats(3, 5, 6, 8), floats(6, 8), floats(6, 8)]
    text = checked(turned, inputs).text
    backward = text[text.index("def f_backward_kernel") :]
    assert "cols % 8" in backward
    assert "outer" not in backward
    assert "rows * 48 + cols" in backward


def test_axes_that_lie_apart_are_not() -> None:
    def apart(x, y):
        return (x * y).sum((0, 1))

    inputs = [floats(3, 5, 6, 8), floats(3, 5, 8, 6).transpose(-1, -2).detach().requires_grad_()]
    assert "outer" in checked(apart, inputs).text


def test_parts_of_sums_that_one_kernel_leaves_are_summed_by_one_more() -> None:
    def normalized(x, weight, bias):
        return F.layer_norm(x, (64,), weight, bias)

    inputs = [floats(512, 64), floats(64), floats(64)]
    text = checked(normalized, inputs).text
    assert len(re.findall(r"^@triton.jit\ndef f_backward", text, re.MULTILINE)) == 2


def test_statistics_of_half_precision_are_kept_in_single() -> None:
    """As a GPU keeps them: the graph is traced on a CPU, which rounds them."""

    def normalized(x, weight, bias):
        return F.layer_norm(x, (64,), weight, bias), F.group_norm(x[..., None], 8, weight, bias)

    inputs = [floats(16, 64, dtype=torch.bfloat16), *(floats(64, dtype=torch.bfloat16) for _ in range(2))]
    text = checked(normalized, inputs).text
    kept = re.findall(r"= torch.empty\((?:16, 1|16, 8).*?dtype=torch.(\w+)", text)
    assert set(kept) == {"float32"}


@pytest.mark.parametrize("rows", [4099, 2 * 2053])
def test_rows_that_nothing_divides_are_summed_in_parts(rows: int) -> None:
    def several(x, bias):
        return torch.relu(x + bias), x.amax(0), x.amin(), (x * x).mean()

    inputs = [floats(rows, 24), floats(24)]
    text = checked(several, inputs).text
    assert len(re.findall(r"_partial = torch\.empty\(", text)) >= 4


@pytest.mark.parametrize("of_columns", ["amax", "amin", "argmax", "logsumexp"])
@pytest.mark.parametrize("of_rows", ["amax", "amin", "logsumexp"])
def test_rows_beyond_the_last_change_nothing_of_columns(of_rows: str, of_columns: str) -> None:
    """Even where each row is shifted by what it is reduced to: that of a row of infinities is infinite, too."""

    def shifted(x):
        x = x - getattr(x, of_rows)(-1, keepdim=True)
        return getattr(x, of_columns)(0), x

    assert wrong(shifted, [torch.randn(17, 19)]) == []


@pytest.mark.parametrize("infinite", [torch.inf, -torch.inf])
@pytest.mark.parametrize(("of_all", "dim"), [("amax", 0), ("amin", 0), ("amax", 1), ("amin", 1), ("logsumexp", 1)])
def test_what_is_shifted_by_infinities_is_masked(of_all: str, dim: int, infinite: float) -> None:
    """Beyond the last row or column there is the least number, less an infinite one of memory: NaN, if it counted."""
    inputs = [torch.randn(17, 19), torch.randn(19) if dim == 0 else torch.randn(17, 1)]
    inputs[1][3] = infinite

    def shifted(x, by):
        return getattr(x - by, of_all)(dim)

    assert wrong(shifted, inputs) == []


def distances(x, y):
    return ((x[:, None] - y[None]) ** 2).sum(-1)


def test_sums_of_a_few_coordinates_are_computed_like_elements() -> None:
    inputs = [floats(40, 3), floats(50, 3)]
    forward = captured(lambda x, y: distances(x, y).amin(1), [i.detach() for i in inputs])
    (launch,) = generated(forward).programs[0].steps
    assert isinstance(launch, KernelLaunch) and [b.shape for b in launch.kernel.writes] == [(40,)]
    assert wrong(distances, inputs) == [] == wrong(lambda x: x.mean(-1), inputs[:1])
