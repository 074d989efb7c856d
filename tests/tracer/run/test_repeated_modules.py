"""Layers that are alike run once where a model runs on symbols."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fx_lsp.tracer.compat import FakeTensorMode
from fx_lsp.tracer.run.observation import Run
from fx_lsp.tracer.run.repeated_modules import repeated_modules_skipped


class Layer(nn.Module):
    ran = 0

    def __init__(self, width: int, index: int = 0) -> None:
        super().__init__()
        self.fc = nn.Linear(width, width)
        self.index = index
        self.last: torch.Tensor | None = None

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, keep: bool = False) -> torch.Tensor:
        Layer.ran += 1
        if keep:
            self.last = x
        return self.fc(x) if mask is None else self.fc(x) * mask


class Scaled(Layer):
    pass


def times_that_layers_run(layers: list[nn.Module], **options: object) -> int:
    """Run layers one after the other on fake tensors, and return how often their code ran."""
    Layer.ran = 0
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, repeated_modules_skipped(Run()):
        x = mode.from_tensor(torch.zeros(4, 8))
        for layer in layers:
            x = layer(x, **options)
        assert list(x.shape) == [4, 8]
    return Layer.ran


@pytest.mark.parametrize(
    ("layers", "times"),
    [
        ([Layer(8), Layer(8), Layer(8)], 2),  # of the first, the input wants no gradient
        ([Layer(8, index=0), Layer(8, index=1), Layer(8, index=2)], 3),
        ([Layer(8), Layer(8), Scaled(8)], 3),
        ([Layer(8), Layer(8).eval(), Layer(8)], 3),
    ],
)
def test_layers_that_are_alike_run_once(layers: list[nn.Module], times: int) -> None:
    assert times_that_layers_run(layers) == times


def test_a_layer_that_keeps_something_runs_each_time() -> None:
    assert times_that_layers_run([Layer(8), Layer(8), Layer(8)], keep=True) == 3


def test_a_layer_with_a_hook_runs_each_time() -> None:
    layers = [Layer(8), Layer(8), Layer(8)]
    for layer in layers:
        layer.register_forward_hook(lambda module, args, result: None)
    assert times_that_layers_run(layers) == 3


def test_layers_that_are_given_values_run_once_for_each_of_them() -> None:
    layers: list[nn.Module] = [Layer(8), Layer(8), Layer(8)]
    assert times_that_layers_run(layers, mask=torch.ones(8)) == 2
