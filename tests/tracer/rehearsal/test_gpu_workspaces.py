"""What reductions allocate inside on a GPU, beside their results."""

from __future__ import annotations

import pytest
import torch

from fx_lsp.tracer.rehearsal.gpu_workspaces import reduction_bytes

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("sizes", "dims", "mebibytes"),
    [
        pytest.param((16384, 1024), [0], 128, id="long columns"),
        pytest.param((8192, 4096), [0], 132, id="as many columns as the GPU has programs for"),
        pytest.param((16384, 1024), [1], 0, id="rows"),
        pytest.param((512, 10), [0], 0, id="short columns"),
        pytest.param((), [0], 0, id="a number"),
    ],
)
def test_blocks_of_a_reduction_pass_on_what_each_has_computed(sizes: tuple[int, ...], dims: list[int], mebibytes: int):
    data = torch.empty(sizes, device="meta")
    assert reduction_bytes(aten.sum, (data, dims), data.sum(dims)) == mebibytes << 20


def test_other_operations_have_none():
    data = torch.empty(16384, 1024, device="meta")
    assert reduction_bytes(aten.relu, (data,), data.relu()) == 0
    assert reduction_bytes(aten.sum, (data.double(), [0]), data.sum(0)) == 256 << 20, "of double precision"
