"""Infer sizes from names: a network with an `obs_dim` gets an `obs` of that width, images are `image_size` wide."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from fx_lsp.tracer.inputs.plan.facts import Facts
from fx_lsp.tracer.inputs.plan.plans import Plan, Plans, Sizes, TensorPlan, ValuePlan

_WIDTHS = ("dim", "dims", "features", "channels")
_OF_THE_INPUT = (*(f"{word}_{width}" for word in ("in", "input") for width in _WIDTHS), "input_size")
"""Names for the width of the single input, as in PyTorch's layers and similar modules."""
IMAGE_SIZE = re.compile(r"(^|_)(image|img|input)_?(size|resolution)$|^resolution$")
"""Names of numbers that are the height and width of images."""


@dataclass(frozen=True)
class NamedSize:
    """Hold a number of the constructor, or of an object that it takes, and the dimension of an input with that size.

    A negative `index` counts from the end.
    """

    path: str
    index: int
    size: int
    name: str

    def is_met(self, sizes: Sizes) -> bool:
        """Return True if a tensor of some sizes has the size at that dimension, or as its channels, or has no such
        dimension.
        """
        there = [sizes[index] for index in (self.index, 1) if -len(sizes) <= index < len(sizes)]
        return not there or self.size in there


def sizes_by_name(
    start: Plans, facts: Mapping[str, Facts], constructor: Iterable[tuple[str, Plan]], is_layer: bool
) -> list[NamedSize]:
    """Return the sizes of guessed tensors that the names of numbers reveal; of a layer, its input's as well."""
    numbers: dict[str, int] = {}
    for name, plan in constructor:
        numbers |= dict(_numbers(name, plan))
    guessed = [(path, plan) for path, plan in start.tensors() if plan.is_guess and not plan.detail]
    others = _OF_THE_INPUT if is_layer and len(list(start.tensors())) == 1 else ()
    sizes = (_of_tensor(path, plan, facts.get(path, Facts()), numbers, others) for path, plan in guessed)
    return [size for of_one in sizes for size in of_one]


def unlike_docstring(plans: Plans, facts: Mapping[str, Facts]) -> list[NamedSize]:
    """Return the named sizes of a docstring that dimensions lack, including those named like a dimension of
    that size.
    """
    named: dict[str, int] = {}
    unlike: list[NamedSize] = []
    for path, plan in plans.tensors():
        shape = facts[path].shape if path in facts else None
        if shape is not None and "..." not in shape and len(shape) == len(plan.spec.sizes):
            for index, (name, size) in enumerate(zip(shape, plan.spec.sizes, strict=True)):
                if isinstance(name, int) and name != size:
                    unlike.append(NamedSize(path, index, name, "the size in the docstring"))
                elif isinstance(name, str) and isinstance(size, int) and named.setdefault(name, size) != size:
                    unlike.append(NamedSize(path, index, named[name], name))
    return unlike


def met_halfway(plans: Plans, unlike: Iterable[NamedSize]) -> list[NamedSize]:
    """Return the same sizes, halfway to the current ones if that makes the same dimensions equal: 16 and 112 are both
    64.
    """
    sizes = {path: plan.spec.sizes for path, plan in plans.tensors()}
    pairs = [(named, sizes[named.path][named.index]) for named in unlike]
    halves = [(named, (named.size + size) // 2) for named, size in pairs if isinstance(size, int)]
    same = [
        NamedSize(path, index, half, named.name)
        for named, half in halves
        for path, there in sizes.items()
        for index, size in enumerate(there)
        if size == named.size and path != named.path
    ]
    return [*(dataclasses.replace(named, size=half) for named, half in halves), *same]


def with_named_sizes(plans: Plans, sizes: Iterable[NamedSize]) -> Plans:
    """Return plans with the named sizes in their dimensions."""
    named = list(sizes)

    def change(path: str, plan: TensorPlan) -> TensorPlan:
        rank = len(plan.spec.sizes)
        by_index = {size.index % rank: size.size for size in named if size.path == path and -rank <= size.index < rank}
        sizes_there = (by_index.get(index, size) for index, size in enumerate(plan.spec.sizes))
        return dataclasses.replace(plan, spec=dataclasses.replace(plan.spec, sizes=tuple(sizes_there)))

    return plans.map_tensors(change)


def _numbers(name: str, plan: Plan) -> Iterator[tuple[str, int]]:
    """Yield the integers among a constructor's arguments with their names, directly or as attributes of an object;
    those of a module describe that module's input.
    """
    if not isinstance(plan, ValuePlan):
        return
    try:
        value = plan.make()
    except Exception:
        return
    is_module = isinstance(value, nn.Module)
    held = value if isinstance(value, dict) else {} if is_module else getattr(value, "__dict__", {})
    for key, item in {name: value, **held}.items():
        if type(item) is int and item > 1 and isinstance(key, str):
            yield key, item


def _of_tensor(
    path: str, plan: TensorPlan, facts: Facts, numbers: Mapping[str, int], others: Sequence[str]
) -> Iterator[NamedSize]:
    rank = len(plan.spec.sizes)
    if not plan.spec.dtype.startswith(("f", "bf")) or rank < 2:
        return
    images = {name: size for name, size in numbers.items() if IMAGE_SIZE.search(name)}
    if rank == 4 and len({*images.values()}) == 1:
        name, size = next(iter(images.items()))
        yield from (NamedSize(path, index, size, name) for index in (-2, -1))
    called = path.rpartition(".")[2]
    index = 1 if facts.spatial or rank > 3 else -1
    names = [f"{word}_{width}" for word in (called, called.removesuffix("s")) for width in _WIDTHS]
    named = next((name for name in (*names, *others) if name in numbers), None)
    is_known = bool({index, index % rank} & facts.sizes.keys())
    if named is not None and not is_known and (rank < 4 or _is_width_of_image(named, others)):
        yield NamedSize(path, index, numbers[named], named)


def _is_width_of_image(name: str, others: Sequence[str]) -> bool:
    """Return True if a number is the channels of images, not their width."""
    return "channels" in name or (name in others and not IMAGE_SIZE.search(name))
