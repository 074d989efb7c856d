"""The registry of lowerings: operations that can be part of a kernel. The modules of `lower` fill it."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import fx

from fx_lsp.codegen.ir.index import Coords
from fx_lsp.codegen.ir.values import Guard, Value

Lowering: TypeAlias = "Callable[[Any, fx.Node, Coords, Guard, int], Value]"
"""A function that returns a result of a node (by number) at coordinates under a guard. The builder comes first."""

_LOWERINGS: dict[str, Lowering] = {}


class NotFusible(Exception):
    """`node` cannot be part of this kernel: it must be stored in memory first."""

    def __init__(self, node: fx.Node, why: str) -> None:
        super().__init__(f"{node}: {why}")
        self.node, self.why = node, why


def lowering(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of operations: `aten.cat`, or `aten.add.Tensor` for one overload."""

    def enter(function: Lowering) -> Lowering:
        for name in names:
            _LOWERINGS[name] = function
        return function

    return enter


def lowering_of(node: fx.Node) -> Lowering | None:
    """Return the lowering of a node, or None if it cannot be part of a kernel."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        source: Any = node.args[0]
        return None if lowering_of(source) is None else _item
    name = operation(node)
    return _LOWERINGS.get(name) or _LOWERINGS.get(name.rpartition(".")[0])


def operation(node: fx.Node) -> str:
    """Return the name of the operator of a node, such as `aten.add.Tensor`, or "" for anything else."""
    return str(node.target) if isinstance(node.target, torch._ops.OpOverload) else ""


def _item(builder: Any, node: fx.Node, coords: Coords, guard: Guard, part: int) -> Value:
    source: Any = node.args[0]
    number: Any = node.args[1]
    return builder.lower(source, coords, guard, number)


def aliases_first(node: fx.Node) -> bool:
    """Return True if the schema of the operator declares its result a view of its first argument."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.arguments:
        return False
    alias = node.target._schema.arguments[0].alias_info
    return alias is not None and not alias.is_write


def is_random(node: fx.Node) -> bool:
    """Return True if a node draws random numbers. Dropout with probability 0 does not."""
    target: Any = node.target
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return False
    dropped = [
        node.args[place] if place < len(node.args) else node.kwargs.get(argument.name, argument.default_value)
        for place, argument in enumerate(target._schema.arguments)
        if argument.name in ("dropout", "dropout_p")
    ]
    return not dropped or any(probability != 0.0 for probability in dropped)


def args_of(node: fx.Node) -> list[Any]:
    """Return the arguments of a node, untyped."""
    return list(node.args)
