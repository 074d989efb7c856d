"""Guess integers from names."""

from __future__ import annotations

import re

INTEGERS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), number)
    for pattern, number in (
        (r"head_(dim|size)|(dim|d)_head$|^d_?[kqv]$", 16),
        (r"heads?$|groups?$", 4),
        (r"(^|_)(layers?|blocks?|depth|repeats?|reps?|rep|times|stages|experts)$", 2),
        (r"kernel", 3),
        (r"window|patch", 4),
        (r"(?i)^(h|w|height|width)$", 8),
        (r"image_size|img_size|resolution", 32),
        (r"stride|dilation|scale|factor|ratio|expansion|mult", 2),
        (r"padding|pad|offset|start|layer_(idx|id|index)|(^|_)(idx|index)$", 0),
        (r"vocab|num_embeddings|num_classes|classes|^n_?(class|tok)", 1000),
        (r"out(put)?_?(features|channels|dim|size|planes)|out_", 32),
        (r"inner|intermediate|mlp|ffn|ff_", 256),
        (r"^n_?feat|dim|size|features|channels|hidden|width|planes|embe?d|^d_|units", 64),
        (r"len|steps|seq|num_|^n_|count|max", 8),
    )
)
"""Patterns of names, each with a number."""


def number_named(name: str) -> int:
    """Return a plausible integer for a name."""
    return next((number for pattern, number in INTEGERS if pattern.search(name)), 2)


def says_number(name: str) -> bool:
    """Return True if a name reveals the kind of its number."""
    return any(pattern.search(name) for pattern, _ in INTEGERS)


def counts_something(name: str) -> bool:
    """Return True if a parameter of that name is rather a number than a tensor: `hidden_size`, `num_steps`.

    `hidden_states` and `features` are tensors with such sizes.
    """
    last = name.rpartition("_")[2]
    return _COUNTED.match(name) is not None or (says_number(last) and _OF_TENSORS.search(last) is None)


_COUNTED = re.compile(r"(n|num|nb|max|min)_")
_OF_TENSORS = re.compile(r"features|hidden|embe?d|^(pad|offset|mult|scale|factor|ratio)s$")
