"""Rewrite a script for a rehearsal: statements that need missing data bind placeholders, loops end when they bring
nothing new, and the block under `if __name__ == "__main__":` runs.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType, FunctionType
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from fx_lsp.syntax import blocks_of, entered, is_main_guard
from fx_lsp.tracer.program.absences import guarded, with_numbers
from fx_lsp.tracer.source.provenance import MODULE_CALL

TURNS, AGAIN, TRYING = " turns", " again", " trying"
"""Names that rewritten code calls: around the iterable of a `for` loop, at each iteration of a `while` loop, and around
statements whose exceptions the code catches. Identifiers of the user have no leading space."""
IDLE_TURNS = 2
"""The number of iterations of a loop that bring nothing new before it is left. Of one that trains, two show what goes
from one training step to the next."""
LOOP_CALLS = 5_000
"""The number of operations on tensors after which a loop is left, if it has had two iterations."""
FILLING_CALLS = 500
"""The same for a loop that brings nothing new, but fills a collection, from which later code may take many items."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_PLAIN = (ast.Return, ast.Break, ast.Continue, ast.Pass, ast.Global, ast.Nonlocal, ast.Raise)
_CATCHING = frozenset({"suppress", "raises", "assertRaises"})
_COLLECTING = frozenset({"append", "extend", "add", "update", "insert", "appendleft"})


class Turns:
    """Ends loops of a project whose last iterations brought nothing new, trained, or lacked something; and long ones.

    A loop is left the way it would end by itself. `news` counts what a program has shown so far: calls of targets
    with arguments that are new, and modules that it makes. `collected` are the names of what loops added to that
    were left, and `left` are their places while `trains_on` returned True; `absences`, `calls` and `backwards`
    count what was lacking, operations on tensors, and backward passes. While `trains_on` returns True, loops are
    only left after `loop_calls` operations; a loop that trains is not.
    """

    def __init__(self) -> None:
        self.collected: set[str] = set()
        self.left: dict[tuple[str, int], None] = {}
        self.absences = self.calls = self.backwards = self.news = 0
        self.trains_on: Callable[[], bool] = lambda: False
        self.loop_calls = LOOP_CALLS

    def note(self) -> None:
        """Count a call with arguments that are new."""
        self.news += 1

    @contextmanager
    def counting(self) -> Generator[None, None, None]:
        """Inside, backward passes and new modules are counted."""
        original: Callable[..., Any] = torch.autograd.backward
        construct: Callable[..., None] = nn.Module.__init__

        def backward(*args: Any, **kwargs: Any) -> Any:
            self.backwards += 1
            return original(*args, **kwargs)

        def constructed(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            self.news += 1
            construct(module, *args, **kwargs)

        with patch.object(torch.autograd, "backward", backward), patch.object(nn.Module, "__init__", constructed):
            yield

    def through(self, items: Iterable[Any], *names: str) -> Iterator[Any]:
        """Yield the items that a loop goes through, which adds to what has these names."""
        again = self._again(sys._getframe(1), names)
        for item in items:
            if not (_is_of_model(item) or again()):
                return
            yield item

    def again(self, *names: str) -> Callable[[], bool]:
        """Return a function that says at the begin of each iteration of a loop if it is to run."""
        return self._again(sys._getframe(1), names)

    def _again(self, frame: FrameType, names: Sequence[str]) -> Callable[[], bool]:
        turns: list[tuple[int, int, int, int]] = []
        begin, place = self.calls, (frame.f_code.co_filename, frame.f_lineno)
        is_in_model = _is_in_model(frame)

        def is_wanted() -> bool:
            turns.append((self.backwards, self.absences, self.news, self.calls))
            steps = [*pairwise(turns[-IDLE_TURNS - 1 :])]
            if len(steps) < IDLE_TURNS:
                return True
            trained = all(before[0] < after[0] for before, after in steps)
            lacked = all(before[1] < after[1] for before, after in steps)
            computed = all(before[3] < after[3] for before, after in steps)
            is_idle = computed and steps[0][0][2] == steps[-1][1][2] and not is_in_model
            trains_on, idle_calls = self.trains_on(), FILLING_CALLS if names else 0
            most = self.loop_calls if trains_on or not is_idle else idle_calls
            is_over = (not trained and self.calls - begin > most) or lacked or (trained and not trains_on)
            if is_over:
                self.collected |= set(names)
            if is_over and trains_on:
                self.left[place] = None
            return not is_over

        return is_wanted


def _is_in_model(frame: FrameType | None) -> bool:
    """Return True for a loop that a module runs when it is called: its iterations are what it computes."""
    while frame is not None:
        if frame.f_code is MODULE_CALL:
            return True
        frame = frame.f_back
    return False


def _is_of_model(item: Any) -> bool:
    """Return True for a module, a parameter or a function, or a tuple with one: each of a list of them is meant."""
    parts = item if isinstance(item, tuple) else (item,)
    return any(isinstance(part, (nn.Module, nn.Parameter, FunctionType)) for part in parts)


def rehearsed(tree: ast.Module) -> ast.Module:
    """Return the module that a script is rehearsed as; the tree is changed."""
    tree.body = _block(entered(tree.body))
    return with_short_loops(tree)


def imported(tree: ast.Module) -> ast.Module:
    """Return the module that a script is rehearsed as where it is imported; the tree is changed."""
    tree.body = _block([node for node in tree.body if not is_main_guard(node)])
    return with_short_loops(tree)


def rehearse_functions(tree: ast.Module, lines: Collection[int]) -> None:
    """Have the functions that begin at some lines run as those of a script do; the tree is changed."""
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS) and node.lineno in lines:
            node.body = _block(with_numbers(ast.Module(node.body, [])).body)


def with_short_loops(tree: ast.Module) -> ast.Module:
    """Return a module whose loops end when they bring nothing new; the tree is changed."""
    _shorten(tree.body)
    return ast.fix_missing_locations(tree)


def _shorten(block: list[ast.stmt]) -> None:
    for node in [*block]:
        for inner in blocks_of(node):
            _shorten(inner)
        if isinstance(node, ast.For):
            names: list[ast.expr] = [ast.Constant(name) for name in dict.fromkeys(collected_in(node))]
            node.iter = ast.copy_location(ast.Call(_name(TURNS), [node.iter, *names], []), node.iter)
        elif isinstance(node, ast.While):
            names = [ast.Constant(name) for name in dict.fromkeys(collected_in(node))]
            variable = f"{AGAIN} {node.lineno}"
            begin = ast.Assign([ast.Name(variable, ast.Store())], ast.Call(_name(AGAIN), names, []))
            turn = ast.copy_location(ast.Call(_name(variable), [], []), node.test)
            node.test = ast.copy_location(ast.BoolOp(ast.And(), [turn, node.test]), node.test)
            block.insert(block.index(node), ast.copy_location(begin, node))


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
    if isinstance(node, (ast.With, ast.AsyncWith)) and (catching := {*map(_catching, node.items)} - {""}):
        node.body = [_caught(_block(node.body, True), node, is_to_fail=catching != {"suppress"})]
        return [node]
    for inner in blocks_of(node):
        inner[:] = _block(inner, is_caught)
    return [node]


def _try(node: ast.Try, is_caught: bool) -> ast.stmt:
    """Return a statement with handlers, in whose body only exceptions that a handler names are left to it."""
    kinds = [handler.type for handler in node.handlers if handler.type is not None]
    is_typed = len(kinds) == len(node.handlers)
    for inner in (*(handler.body for handler in node.handlers), node.orelse, node.finalbody):
        inner[:] = _block(inner, is_caught)
    node.body = [_caught(_block(node.body, is_caught or not is_typed), node, kinds if is_typed else [])]
    return node


def _caught(body: list[ast.stmt], node: ast.stmt, kinds: Sequence[ast.expr] = (), is_to_fail: bool = False) -> ast.stmt:
    """Return statements whose exceptions the code catches: those of some kinds, or all; a test may say that it
    `is_to_fail`.
    """
    arguments: list[ast.expr] = []
    if kinds:
        nothing = ast.arguments([], [], None, [], [], None, [])
        arguments = [ast.Lambda(nothing, ast.Tuple(copy.deepcopy([*kinds]), ast.Load()))]
    options = [ast.keyword("is_to_fail", ast.Constant(True))] if is_to_fail else []
    return ast.copy_location(ast.With([ast.withitem(ast.Call(_name(TRYING), arguments, options))], body), node)


def _catching(item: ast.withitem) -> str:
    """Return `raises` of `pytest.raises(…)`, or another function that catches what is raised; "" for any other."""
    function = item.context_expr.func if isinstance(item.context_expr, ast.Call) else None
    name = next(_last_name(function), "") if isinstance(function, (ast.Name, ast.Attribute)) else ""
    return name if name in _CATCHING else ""


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())
