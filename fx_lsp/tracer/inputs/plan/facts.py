"""Hold the facts on one parameter before anything runs."""

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
    "text",
]


@dataclass
class Facts:
    """Hold the facts that a body shows of one parameter.

    `rank` is exact, `likely_rank` a guess, `sliced_rank` that of `x[:, t, :]`, `min_rank` a lower bound; `sizes` are
    required sizes, by index, and `multiples` the factors of others; `shape` is that of the docstring; `spatial` is the
    number of dimensions of convolutions; `dtype` is a short name.

    `uses` are the kinds of its uses. "applied" is a constructor argument that is stored and called by methods,
    "modules" are several of them, "reversed" has a dimension sliced backwards (`x[:, ::-1]`), and "text" a method of
    texts alone is called (`x.split(",")`). `length` is the
    number of items that it is unpacked into, and `indexed` their least number by index; `literals` are values that it
    is compared with; `attributes` are read from it or `assigned`, and `keys` are looked up in it. `handed` are the
    functions that receive it unchanged, by dotted name, with the argument's position or name; `arguments` is the number
    of arguments that it is called with, and `results` the number of values that its result is unpacked into. `parts`
    are the facts on its attributes and items, by name, and `element` those on each item of an iteration. An assertion
    requires it to be `instance_of` a class. `keywords` are the names by which it is called with arguments.
    """

    rank: int | None = None
    likely_rank: int | None = None
    sliced_rank: int | None = None
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
    keywords: set[str] = field(default_factory=set[str])
    results: int = 1
    handed: list[tuple[str, int | str]] = field(default_factory=list[tuple[str, "int | str"]])
    parts: dict[str, Facts] = field(default_factory=dict[str, "Facts"])
    element: Facts | None = None
    instance_of: str = ""

    def each(self) -> Facts:
        """Return the facts on each of its items."""
        self.element = self.element or Facts()
        return self.element

    def part(self, name: str) -> Facts:
        """Return the facts on one of its parts."""
        return self.parts.setdefault(name, Facts())

    def take(self, other: Facts) -> None:
        """Add the facts on the parameter of another function that receives the same value."""
        self.rank = self.rank if self.rank is not None else other.rank
        self.min_rank, self.indexed = max(self.min_rank, other.min_rank), max(self.indexed, other.indexed)
        self.dtype, self.length = self.dtype or other.dtype, self.length or other.length
        self.sizes = other.sizes | self.sizes
        if "called" in other.uses - self.uses:
            self.arguments, self.keywords, self.results = other.arguments, {*other.keywords}, other.results
        self.uses |= other.uses & _NEEDS
        self.attributes |= other.attributes
        self.keys |= other.keys
        self.element = self.element or other.element
        for name, part in other.parts.items():
            self.part(name).take(part)

    @property
    def item_count(self) -> int | None:
        """Return the number of items of a sequence, if the body shows it, else None."""
        return self.length or self.indexed or None

    @property
    def called_parts(self) -> frozenset[str]:
        """Return the names of its called parts, without methods of tensors, modules and the like."""
        return frozenset(name for name, part in self.parts.items() if "called" in part.uses) - _METHODS

    @property
    def holds_others(self) -> bool:
        """Return True if it is an object or a dictionary with reads, such as `env.space` in `env.space.shape` and
        `config["net"]` in `config["net"]["width"]`.
        """
        return bool(self.keys or self.attributes & {"shape"} or self.attributes - _METHODS)

    @property
    def may_be_several(self) -> bool:
        """Return True if it may be a list or a tuple: a loop iterates over it."""
        return bool(self.uses & {"iterated", "modules"}) or any(name in _OVER for name, _ in self.handed)


_NEEDS: frozenset[Use] = frozenset({"tensor", "called", "modules", "iterated", "count", "indexed", "index", "text"})
"""Uses that show the kind of a value in any function."""
_METHODS = frozenset(name for kind in (torch.Tensor, nn.Module, dict, list, str) for name in dir(kind))
_OVER = frozenset(
    {"zip", "enumerate", "reversed", "sorted", "list", "tuple", "map", "iter", "len", "torch.cat", "torch.stack"}
)
