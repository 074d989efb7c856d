"""Loaders of data as they are gone through while a program is run on fake tensors: one batch, of the first samples."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils.data import DataLoader, IterableDataset, Subset


@contextmanager
def one_batch_each() -> Generator[None, None, None]:
    """Inside, a loader has one batch, of its first samples, that it draws in this process; what splits data sets at
    random has real numbers to do so."""
    kind: Any = DataLoader
    sets: Any = sys.modules[Subset.__module__]
    before = kind.__iter__, sets.randperm
    kind.__iter__, sets.randperm = _first_samples, _permutation
    try:
        yield
    finally:
        kind.__iter__, sets.randperm = before


def _first_samples(loader: Any) -> Iterator[Any]:
    dataset, size = loader.dataset, loader.batch_size
    samples: list[Any]
    if IterableDataset in type(dataset).__mro__:
        samples = [sample for _, sample in zip(range(size or 1), dataset, strict=False)]
    elif size is None and loader.batch_sampler is not None:
        samples = [dataset[index] for index in next(iter(loader.batch_sampler))]
    else:
        samples = [dataset[index] for index in range(min(len(dataset), size or 1))]
    yield loader.collate_fn(samples if size is not None or loader.batch_sampler is not None else samples[0])


def _permutation(count: int, **options: Any) -> torch.Tensor:
    with unset_fake_temporarily():
        return torch.randperm(count)
