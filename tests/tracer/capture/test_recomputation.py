"""The reasons of PyTorch's partitioner to save values, on real graphs."""

import pytest
import torch
import torch.nn.functional as F

import fx_lsp

pytestmark = pytest.mark.torch


def reasons(function, *sizes: tuple[int, ...]) -> dict[str, str]:
    inputs = [torch.randn(size, requires_grad=True) for size in sizes]
    return {saved.name: saved.why for saved in fx_lsp.trace(function, *inputs).saved}


def test_matrix_products_are_not_recomputed():
    def f(x, w):
        y = x @ w
        return (y * y).sum()

    assert reasons(f, (8, 64), (64, 64))["y"] == "product"


def test_random_values_are_not_sampled_again():
    def f(x):
        return F.dropout(x.sin(), 0.5).sum()

    assert "random" in reasons(f, (64, 64)).values()


def test_reductions_are_not_recomputed():
    def f(x):
        largest = x.exp().sum(1, keepdim=True)
        return (x / largest).sum()

    assert "reduction" in reasons(f, (64, 64)).values()


def test_inputs_have_no_reason():
    def f(x, w):
        return (x * w).sum()

    assert reasons(f, (8, 8), (8, 8)) == {"x": "", "w": ""}
