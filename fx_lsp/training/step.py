"""Find the steps of a file, and name them."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from fx_lsp.syntax import DEFINITIONS, blocks_of
from fx_lsp.training.loops import evaluates, trains
from fx_lsp.training.results import losses_below
from fx_lsp.training.statements import LOOPS, Region, names_in, nodes_below

BACKWARD = " backward"
"""The function that a step passes its losses to; the step's module has to define it."""
STEP = " {}"
"""The variable that holds the function of a loop's step; no variable of the program has a blank in its name."""
BATCHES = "batches"
"""The attribute of a step's function that yields the iterations of its loop, as dicts by parameter name."""
_HOOK = re.compile(r"(training|validation|test)_step$")


@dataclass(frozen=True)
class Step:
    """Describe a step by its qualified name: `train.step` for the first loop of `train`, `train.step_2` for the next.

    `path` are the statements around its `region`, the outermost first.
    """

    name: str
    region: Region
    path: tuple[ast.stmt, ...]

    @property
    def is_hook(self) -> bool:
        """Return True if it is a method that a trainer calls with each batch."""
        return isinstance(self.region, ast.FunctionDef) and _is_hook(self.region, self.path)


def steps_of(tree: ast.Module) -> list[Step]:
    """Return the steps of a file in the order of its text."""
    defined = {node.name for node in ast.walk(tree) if isinstance(node, DEFINITIONS)}
    steps: dict[str, Step] = {}
    for scope, region, path in _regions(tree.body, "", ()):
        name = scope if isinstance(region, ast.FunctionDef) else _free_name(scope, defined, steps)
        steps[name] = Step(name, region, path)
    return list(steps.values())


def _free_name(scope: str, defined: Collection[str], used: Collection[str]) -> str:
    names = itertools.chain(["step"], (f"step_{number}" for number in itertools.count(2)))
    qualified = (f"{scope}.{name}".lstrip(".") for name in names if name not in defined)
    return next(name for name in qualified if name not in used)


def _regions(
    block: Sequence[ast.stmt], scope: str, path: tuple[ast.stmt, ...]
) -> Iterator[tuple[str, Region, tuple[ast.stmt, ...]]]:
    """Yield the loops and functions in a block that are steps, each with the name and the statements around it; a
    function with its own name.
    """
    for node in block:
        name = scope
        if isinstance(node, DEFINITIONS):
            if node.name.startswith(("test_", "Test")):
                continue
            name = f"{scope}.{node.name}".lstrip(".")
        if isinstance(node, (*LOOPS, ast.FunctionDef)) and _is_step(node, path):
            yield name, node, path
        else:
            for inner in blocks_of(node):
                yield from _regions(inner, name, (*path, node))


def _is_step(node: Region, path: Sequence[ast.stmt]) -> bool:
    if isinstance(node, ast.FunctionDef):
        return _is_hook(node, path) or _computes_loss(node)
    return trains(node) or evaluates(node)


def _is_hook(node: ast.FunctionDef, path: Sequence[ast.stmt]) -> bool:
    """Return True if a function is a method that a trainer calls with each batch."""
    names = [argument.arg for argument in node.args.args]
    return bool(path and isinstance(path[-1], ast.ClassDef) and _HOOK.match(node.name)) and "batch" in names


def _computes_loss(node: ast.FunctionDef) -> bool:
    """Return True if a function calls `backward` outside of its loops on a loss that it computes."""
    if node.name == "backward" or not losses_below(node, *LOOPS):
        return False
    losses = losses_below(node)
    stored = {part.id for part in nodes_below(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    return bool(names_in(*losses) & stored) or any(isinstance(loss, ast.Call) for loss in losses)
