"""What kernels refuse because of a dtype is an error in a trace as well, although their fakes take it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
import torch
import torch.nn.functional as F
from conftest import TraceFixture
from torch import Tensor

from fx_lsp.model import Failure
from fx_lsp.tracer.run.fakes import fake_mode

WORDS, MASK, HALVES = (
    torch.zeros(4, 8, dtype=torch.int64),
    torch.zeros(4, 8, dtype=torch.bool),
    torch.zeros(2, 8).half(),
)
IMAGES, ROWS = torch.zeros(4, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1])
Case: TypeAlias = tuple[Callable[[Tensor], object], Tensor]

REFUSED: dict[str, Case] = {
    "a mask that is subtracted": (lambda mask: 1 - mask, MASK),
    "probabilities of integers": (lambda words: F.softmax(words, -1), WORDS),
    "a deviation of integers": (lambda words: words.std(), WORDS),
    "pixels that are bytes": (lambda images: F.avg_pool2d(images, 2), IMAGES),
    "nearest words": (lambda images: F.interpolate(images.long(), scale_factor=2), IMAGES),
    "a product with integers": (lambda words: torch.randn(2, 4) @ words, WORDS),
    "a layer of integers": (lambda words: F.linear(words, torch.randn(2, 8)), WORDS),
    "a convolution of bytes": (lambda images: F.conv2d(images, torch.randn(2, 3, 3, 3), torch.randn(2)), IMAGES),
    "a loss of integers": (lambda words: F.binary_cross_entropy(torch.rand(4, 8), words), WORDS),
    "rows of another dtype": (lambda rows: torch.zeros(4, 8).index_copy_(0, rows, torch.zeros(2, 8).half()), ROWS),
}
TAKEN: dict[str, Case] = {
    "a mask that is inverted": (lambda mask: ~mask, MASK),
    "a mask that weighs": (lambda mask: 1.0 - mask.float(), MASK),
    "a sum of integers": (lambda words: words.sum(-1) * 0.5, WORDS),
    "the largest pixels": (lambda images: F.max_pool2d(images, 2), IMAGES),
    "integers among numbers": (lambda words: torch.where(words > 0, torch.ones(4, 8), 0), WORDS),
    "rows": (lambda rows: torch.zeros(4, 8)[rows], ROWS),
}


def is_refused(function: Callable[[Tensor], object], tensor: Tensor) -> bool:
    try:
        function(tensor)
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("name", [*REFUSED, *TAKEN])
def test_fakes_take_what_kernels_take(name: str) -> None:
    function, tensor = (REFUSED | TAKEN)[name]
    assert is_refused(function, tensor) == (name in REFUSED)
    mode = fake_mode()
    with mode:
        assert is_refused(function, mode.from_tensor(tensor)) == (name in REFUSED)


def test_the_error_stands_on_the_expression(trace: TraceFixture) -> None:
    source = "import torch\n\ndef keep(x: torch.Tensor):\n    padding = x == 0\n    return x * (1 - padding)\n"
    failure = trace(source, "keep").outcome
    assert isinstance(failure, Failure) and failure.span is not None
    assert (failure.severity, failure.kind) == ("error", "dtype")
    assert source.splitlines()[4][failure.span.col : failure.span.end_col] == "1 - padding"
