"""Iterate over data loaders while a program runs on fake tensors: one batch, of the first samples."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_map_only
from torch.utils.data import DataLoader, IterableDataset, Subset

from fx_lsp.tracer.program.data.missing_datasets import has_placeholders, loaded

FULL_BATCHES = 64
"""The most batches of a run that needs several full ones."""


@contextmanager
def one_batch_each(batches: Callable[[Any], Iterator[Any]] | None = None) -> Generator[None, None, None]:
    """Give a loader one batch inside, of its first samples, loaded in this process; or those that `batches` yields for
    it. Random splits of datasets use real numbers.
    """
    kind: Any = DataLoader
    sets: Any = sys.modules[Subset.__module__]
    before = kind.__iter__, sets.randperm
    kind.__iter__, sets.randperm = (lambda loader: (batches or _first_samples)(loader)), _permutation
    try:
        yield
    finally:
        kind.__iter__, sets.randperm = before


def first_and_last(loader: Any) -> Iterator[Any]:
    """Yield the distinct batches of a loader: a full one, and the remainder."""
    yield from _first_samples(loader)
    size, is_counted = loader.batch_size, IterableDataset not in type(loader.dataset).__mro__
    count = len(loader.sampler) if is_counted and size is not None else 0
    if size is None or count <= size:
        return
    left = size if loader.drop_last else count % size or size
    if count - count % size > size or not loader.drop_last:
        yield _loaded(loader, lambda: loader.collate_fn([loader.dataset[index] for index in range(left)]))


@dataclass
class FullBatches:
    """Yields `FULL_BATCHES` times the first batch of a loader, `factor` times as large: each tensor with as many rows
    as the batch has samples is repeated. `size` is the number of samples in a batch of the first loader, 0 without one.
    Once nothing `trains_on`, a loader has one batch.
    """

    factor: int = 1
    size: int = 0
    trains_on: Callable[[], bool] = lambda: True

    def __call__(self, loader: Any) -> Iterator[Any]:
        """Yield the batches of a loader."""
        size: int = loader.batch_size or 0
        self.size = self.size or size * self.factor

        def larger(tensor: torch.Tensor) -> torch.Tensor:
            return torch.cat([tensor] * self.factor) if tensor.dim() and tensor.shape[0] == size else tensor

        batches = [tree_map_only(torch.Tensor, larger, batch) for batch in _first_samples(loader)]
        for _ in range(FULL_BATCHES):
            yield from batches
            if not self.trains_on():
                break


def _first_samples(loader: Any) -> Iterator[Any]:
    yield _loaded(loader, lambda: _batch(loader))


def _loaded(loader: Any, load: Callable[[], Any]) -> Any:
    """Return a batch; placeholders for missing images pass through transforms and collate function as real images."""
    return loaded(load) if has_placeholders(loader.dataset) else load()


def _batch(loader: Any) -> Any:
    dataset, size = loader.dataset, loader.batch_size
    samples: list[Any]
    if IterableDataset in type(dataset).__mro__:
        samples = [sample for _, sample in zip(range(size or 1), dataset, strict=False)]
    elif size is None and loader.batch_sampler is not None:
        samples = [dataset[index] for index in next(iter(loader.batch_sampler))]
    else:
        samples = [dataset[index] for index in range(min(len(dataset), size or 1))]
    return loader.collate_fn(samples if size is not None or loader.batch_sampler is not None else samples[0])


def _permutation(count: int, **options: Any) -> torch.Tensor:
    with unset_fake_temporarily():
        return torch.randperm(count)
