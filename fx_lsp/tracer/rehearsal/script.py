"""Rewrite a script for a rehearsal: statements that need missing data bind placeholders, training loops have two
iterations, and the block under `if __name__ == "__main__":` runs."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch

from fx_lsp.syntax import blocks_of, entered
from fx_lsp.tracer.program.absences import guarded

TURNS, AGAIN, TRYING = " turns", " again", " trying"
"""Names that rewritten code calls: around the iterable of a `for` loop, at each iteration of a `while` loop, and around
statements whose exceptions the code catches. Identifiers of the user have no leading space."""
TRAINING_TURNS = 2
"""The number of turns of a loop that trains: two show what goes from one training step to the next."""
LOOP_CALLS = 5_000
"""The number of operations on tensors after which a loop ends, if it has had two iterations."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN = (ast.Return, ast.Break, ast.Continue, ast.Pass, ast.Global, ast.Nonlocal, ast.Raise)
_CATCHING = frozenset({"suppress", "raises", "assertRaises"})
_COLLECTING = frozenset({"append", "extend", "add", "update", "insert", "appendleft"})


class Turns:
    """Ends loops whose last turns trained, or lacked something, and long ones.

    `collected` are the names of what loops added to that were ended; `absences`, `calls` and `backwards` count what was
    lacking, operations on tensors, and backward passes.
    """

    def __init__(self) -> None:
        self.collected: set[str] = set()
        self.absences = self.calls = 0
        self.backwards = 0

    @contextmanager
    def counting(self) -> Generator[None, None, None]:
        """Inside, backward passes are counted."""
        original: Callable[..., Any] = torch.autograd.backward

        def backward(*args: Any, **kwargs: Any) -> Any:
            self.backwards += 1
            return original(*args, **kwargs)

        torch.autograd.backward = backward
        try:
            yield
        finally:
            torch.autograd.backward = original

    def through(self, items: Iterable[Any], *names: str) -> Iterator[Any]:
        """Yield the items that a loop goes through, which adds to what has these names."""
        again = self.again(*names)
        for item in items:
            if not again():
                return
            yield item

    def again(self, *names: str) -> Callable[[], bool]:
        """Return a function that says at the begin of each iteration of a loop if it is to run."""
        turns: list[tuple[int, int]] = []
        begin = self.calls

        def is_wanted() -> bool:
            turns.append((self.backwards, self.absences))
            last = turns[-TRAINING_TURNS - 1 :]
            steps = [*pairwise(last)]
            trained = all(before[0] < after[0] for before, after in steps)
            lacked = all(before[1] < after[1] for before, after in steps)
            is_over = len(steps) == TRAINING_TURNS and (trained or lacked or self.calls - begin > LOOP_CALLS)
            if is_over:
                self.collected |= set(names)
            return not is_over

        return is_wanted


def rehearsed(tree: ast.Module) -> ast.Module:
    """Return the module that a script is rehearsed as; the tree is changed."""
    tree.body = _block(entered(tree.body))
    return ast.fix_missing_locations(tree)


def collected_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement adds to: `losses` of `losses.append(…)`, `total` of `total += …`."""
    for part in ast.walk(node):
        if isinstance(part, ast.AugAssign):
            yield from _last_name(part.target)
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _COLLECTING:
            yield from _last_name(part.func.value)


def _last_name(node: ast.AST) -> Iterator[str]:
    while isinstance(node, ast.Subscript):
        node = node.value
    if isinstance(node, (ast.Name, ast.Attribute)):
        yield node.id if isinstance(node, ast.Name) else node.attr


def _block(block: Sequence[ast.stmt], is_caught: bool = False) -> list[ast.stmt]:
    """Return the statements of a block; what `is_caught` by the code itself is left to it."""
    statements: list[ast.stmt] = []
    for node in block:
        replacement = _statement(node, is_caught)
        keeps = is_caught or isinstance(node, (*_PLAIN, *_FUNCTIONS)) or _is_future(node)
        statements += replacement if keeps else [*replacement[:-1], guarded(replacement[-1], is_whole=True)]
    return statements


def _statement(node: ast.stmt, is_caught: bool) -> list[ast.stmt]:
    if isinstance(node, _FUNCTIONS):
        node.body = _block(node.body)
        return [node]
    if isinstance(node, ast.ClassDef):
        node.body = [inner for member in node.body for inner in _statement(member, True)]
        return [node]
    if isinstance(node, ast.Try) and node.handlers:
        return [_try(node, is_caught)]
    if isinstance(node, (ast.With, ast.AsyncWith)) and any(_catches(item) for item in node.items):
        node.body = [_caught(_block(node.body, True), node)]
        return [node]
    for inner in blocks_of(node):
        inner[:] = _block(inner, is_caught)
    if isinstance(node, ast.For):
        names: list[ast.expr] = [ast.Constant(name) for name in dict.fromkeys(collected_in(node))]
        node.iter = ast.copy_location(ast.Call(_name(TURNS), [node.iter, *names], []), node.iter)
    elif isinstance(node, ast.While):
        names = [ast.Constant(name) for name in dict.fromkeys(collected_in(node))]
        variable = f"{AGAIN} {node.lineno}"
        begin = ast.Assign([ast.Name(variable, ast.Store())], ast.Call(_name(AGAIN), names, []))
        turn = ast.copy_location(ast.Call(_name(variable), [], []), node.test)
        node.test = ast.copy_location(ast.BoolOp(ast.And(), [turn, node.test]), node.test)
        return [ast.copy_location(begin, node), node]
    return [node]


def _try(node: ast.Try, is_caught: bool) -> ast.stmt:
    """Return a statement with handlers, in whose body only exceptions that a handler names are left to it."""
    kinds = [handler.type for handler in node.handlers if handler.type is not None]
    is_typed = len(kinds) == len(node.handlers)
    for inner in (*(handler.body for handler in node.handlers), node.orelse, node.finalbody):
        inner[:] = _block(inner, is_caught)
    node.body = [_caught(_block(node.body, is_caught or not is_typed), node, kinds if is_typed else [])]
    return node


def _caught(body: list[ast.stmt], node: ast.stmt, kinds: Sequence[ast.expr] = ()) -> ast.stmt:
    """Return statements whose exceptions the code catches: those of some kinds, or all."""
    arguments: list[ast.expr] = []
    if kinds:
        nothing = ast.arguments([], [], None, [], [], None, [])
        arguments = [ast.Lambda(nothing, ast.Tuple(copy.deepcopy([*kinds]), ast.Load()))]
    return ast.copy_location(ast.With([ast.withitem(ast.Call(_name(TRYING), arguments, []))], body), node)


def _catches(item: ast.withitem) -> bool:
    function = item.context_expr.func if isinstance(item.context_expr, ast.Call) else None
    return isinstance(function, (ast.Name, ast.Attribute)) and next(_last_name(function), "") in _CATCHING


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())
