"""Hold what is known of one parameter before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from fx_lsp.tracer.inputs.plan.dims import Shape

Use = Literal[
    "tensor",
    "called",
    "applied",
    "modules",
    "iterated",
    "count",
    "compared",
    "operand",
    "indexed",
    "index",
    "keywords",
    "reversed",
]


@dataclass
class Facts:
    """The facts that a body shows of one parameter.

    `rank` is exact, `likely_rank` a guess, `min_rank` a lower bound; `sizes` those that the code demands, by index, and
    `multiples` what others have to be multiples of; `shape` is what the docstring says; `spatial` is over
    how many dimensions convolutions go; `dtype` a short name; `uses`
    what it is used as; `length` how many items it is unpacked into, and `indexed` how many those have at least that are
    taken by number; `literals` what it is compared with; `attributes` are read from it or `assigned`, and `keys` looked
    up in it; `handed` says which functions it is given as it is, by the dotted name of each, and as which of their
    arguments; `arguments` how many it is called with, and `results` into how many its result is unpacked. What a
    constructor only keeps and methods call is "applied", and "modules" are several of them; what has a dimension taken
    backwards (`x[:, ::-1]`) is "reversed". `parts` say the same of its
    attributes and of what is looked up in it, by name, and `element` of each of the things that it is gone over for.
    An assertion demands that it is `instance_of` a class.
    """

    rank: int | None = None
    likely_rank: int | None = None
    min_rank: int = 0
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    multiples: dict[int, int] = field(default_factory=dict[int, int])
    shape: Shape | None = None
    spatial: int = 0
    length: int | None = None
    indexed: int = 0
    attributes: set[str] = field(default_factory=set[str])
    assigned: set[str] = field(default_factory=set[str])
    keys: set[str] = field(default_factory=set[str])
    dtype: str | None = None
    uses: set[Use] = field(default_factory=set)
    literals: list[Any] = field(default_factory=list)
    arguments: int = 1
    results: int = 1
    handed: list[tuple[str, int | str]] = field(default_factory=list[tuple[str, "int | str"]])
    parts: dict[str, Facts] = field(default_factory=dict[str, "Facts"])
    element: Facts | None = None
    instance_of: str = ""

    def each(self) -> Facts:
        """Return what is known of each of the things that it has."""
        self.element = self.element or Facts()
        return self.element

    def part(self, name: str) -> Facts:
        """Return what is known of one of its parts."""
        return self.parts.setdefault(name, Facts())

    def take(self, other: Facts) -> None:
        """Add what another function, which is handed the same thing, shows that it needs of it."""
        self.rank = self.rank if self.rank is not None else other.rank
        self.min_rank, self.indexed = max(self.min_rank, other.min_rank), max(self.indexed, other.indexed)
        self.dtype, self.length = self.dtype or other.dtype, self.length or other.length
        self.sizes = other.sizes | self.sizes
        self.uses |= other.uses & _NEEDS
        self.attributes |= other.attributes
        self.keys |= other.keys
        self.element = self.element or other.element
        for name, part in other.parts.items():
            self.part(name).take(part)

    @property
    def item_count(self) -> int | None:
        """Return how many items a sequence has, where the body says so."""
        return self.length or self.indexed or None

    @property
    def called_parts(self) -> frozenset[str]:
        """Return the names of its parts that are called, and are no methods of tensors, modules and the like."""
        return frozenset(name for name, part in self.parts.items() if "called" in part.uses) - _METHODS

    @property
    def holds_others(self) -> bool:
        """Tell whether it is an object or a dictionary that something is read of, as `env.space` in `env.space.shape`
        and `config["net"]` in `config["net"]["width"]`."""
        return bool(self.keys or self.attributes & {"shape"} or self.attributes - _METHODS)

    @property
    def may_be_several(self) -> bool:
        """Tell whether it may be a list or a tuple of things: it is gone over."""
        return bool(self.uses & {"iterated", "modules"}) or any(name in _OVER for name, _ in self.handed)


_NEEDS: frozenset[Use] = frozenset({"tensor", "modules", "iterated", "count", "indexed", "index"})
"""Uses that say what a thing is, whoever has it."""
_METHODS = frozenset(name for kind in (torch.Tensor, nn.Module, dict, list, str) for name in dir(kind))
_OVER = frozenset(
    {"zip", "enumerate", "reversed", "sorted", "list", "tuple", "map", "iter", "len", "torch.cat", "torch.stack"}
)
