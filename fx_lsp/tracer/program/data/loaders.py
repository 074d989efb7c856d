"""Iterate over data loaders while a program runs on fake tensors: one batch, of the first samples."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils.data import DataLoader, IterableDataset, Subset

from fx_lsp.tracer.program.data.missing_datasets import has_placeholders, loaded


@contextmanager
def one_batch_each(and_last: bool = False) -> Generator[None, None, None]:
    """Give a loader one batch inside, of its first samples, loaded in this process; with `and_last` a second one as
    large as its last. Random splits of datasets use real numbers.
    """
    kind: Any = DataLoader
    sets: Any = sys.modules[Subset.__module__]
    before = kind.__iter__, sets.randperm
    kind.__iter__, sets.randperm = _first_and_last if and_last else _first_samples, _permutation
    try:
        yield
    finally:
        kind.__iter__, sets.randperm = before


def _first_and_last(loader: Any) -> Iterator[Any]:
    """Yield the distinct batches of a loader: a full one, and the remainder."""
    yield from _first_samples(loader)
    size, is_counted = loader.batch_size, IterableDataset not in type(loader.dataset).__mro__
    count = len(loader.sampler) if is_counted and size is not None else 0
    if size is None or count <= size:
        return
    left = size if loader.drop_last else count % size or size
    if count - count % size > size or not loader.drop_last:
        yield _loaded(loader, lambda: loader.collate_fn([loader.dataset[index] for index in range(left)]))


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
