"""Checks of tensors' values that only stop something where they fail: a trace takes for granted that they do not.

That is an error that is raised, a warning, or the end of a loop before its time.
"""

from __future__ import annotations

import ast
import dis
import linecache
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

import torch

from fx_lsp.model import Remark, Span
from fx_lsp.syntax import parse
from fx_lsp.tracer.run.call import RUN_CODE
from fx_lsp.tracer.source.provenance import Sources

_TRUTH = re.compile("POP_JUMP|JUMP_IF|TO_BOOL|UNARY_NOT")
"""Instructions that ask whether a value is true. From Python 3.13 on, a comparison may ask so of what it gives."""
_NO_VALUE = re.compile(f"{_TRUTH.pattern}|CACHE|EXTENDED_ARG|COPY|NOT_TAKEN")
_TOLD = frozenset({"print", "warn", "warning", "warn_once", "warning_once", "info", "debug", "log"})
"""Calls that only tell something."""
_AS_USERS_WRITE = tuple(
    os.path.join(os.path.dirname(torch.__file__), part) + os.sep for part in ("distributions", "nn", "optim")
)
"""The parts of PyTorch that are written as its users write."""


@dataclass(frozen=True)
class _Check:
    """A test, what it has to be for the program to go on, and what the user is told where that is taken for granted."""

    test: ast.expr
    wanted: bool
    told: str


class Checks:
    """Which way a trace goes where code asks for a value, and does nothing with it but stop or tell."""

    def __init__(self, sources: Sources, lines: list[str]) -> None:
        self._sources, self._lines = sources, lines
        self._known: dict[str, list[_Check]] = {}
        self._taken: dict[Remark, None] = {}

    def outcome(self, frame: FrameType | None) -> bool | None:
        """What the value that is asked for below `frame` has to be for the program to go on; None if it is no check."""
        while frame is not None and not self._is_users(frame.f_code.co_filename):
            if frame.f_code is RUN_CODE:
                return None
            frame = frame.f_back
        asked = _asked(frame) if frame is not None else None
        if frame is None or asked is None:
            return None
        file = frame.f_code.co_filename
        span = self._sources.span(frame.f_code, asked, frame.f_lineno)
        for check in self._checks(file):
            values = {value for part, value in _parts(check.test, check.wanted) if _gives(part, span)}
            if len(values) == 1:
                text = ast.unparse(check.test)
                where = "" if self._sources.rank(file) == 0 else f" in {os.path.basename(file)}"
                told = check.told.format(f"`{text if len(text) <= 60 else f'{text[:57]}…'}`{where}")
                self._taken[Remark(told, next(iter(self._sources.chain(frame, RUN_CODE)), None))] = None
                return values.pop()
        return None

    def remarks(self) -> tuple[Remark, ...]:
        """What was taken for granted, each where the code checks it."""
        return tuple(self._taken)

    def _is_users(self, file: str) -> bool:
        return self._sources.rank(file) < 2 or file.startswith(_AS_USERS_WRITE)

    def _checks(self, file: str) -> list[_Check]:
        if file not in self._known:
            lines = self._lines if file == self._sources.file else [n.rstrip("\n") for n in linecache.getlines(file)]
            try:
                self._known[file] = list(_checks_below(parse("\n".join(lines))))
            except (SyntaxError, ValueError, RecursionError):
                self._known[file] = []
        return self._known[file]


def _checks_below(tree: ast.AST, loop: ast.AST | None = None) -> Iterator[_Check]:
    """The checks of a tree; `loop` is the innermost one around it."""
    if isinstance(tree, ast.Assert):
        yield _Check(tree.test, True, _PASSES)
    elif isinstance(tree, ast.If):
        only_ends = isinstance(tree.body[-1], ast.Break) and all(map(_only_tells, tree.body[:-1]))
        raises, otherwise = _raises(tree.body), bool(tree.orelse) and _raises(tree.orelse)
        if (raises and not otherwise) or (not tree.orelse and all(map(_only_tells, tree.body))):
            yield _Check(tree.test, False, _PASSES)
        elif otherwise and not raises:
            yield _Check(tree.test, True, _PASSES)
        elif only_ends and not tree.orelse and isinstance(loop, ast.For) and not loop.orelse:
            yield _Check(tree.test, False, _ENDS)
    inner = tree if isinstance(tree, (ast.For, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)) else loop
    for node in ast.iter_child_nodes(tree):
        yield from _checks_below(node, inner)


def _raises(block: list[ast.stmt]) -> bool:
    return isinstance(block[-1], ast.Raise)


_PASSES = "the trace takes for granted that the check {} passes"
_ENDS = "the trace follows the loop to its end: {} may end it sooner"


def _asked(frame: FrameType) -> int | None:
    """The instruction that gave the value whose truth is asked for now; None where something else is done."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if dis.opname[code[at]] == "COMPARE_OP":
        return at
    if not _TRUTH.match(dis.opname[code[at]]):
        return None
    while at > 0 and _NO_VALUE.match(dis.opname[code[at]]):
        at -= 2
    return at


def _only_tells(statement: ast.stmt) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return isinstance(statement, ast.Pass)
    return (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")) in _TOLD


def _parts(test: ast.expr, value: bool) -> Iterator[tuple[ast.expr, bool]]:
    """The parts of a test that are asked one by one, and what each has to be for the whole to have that value."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _parts(part, value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand, not value)
    else:
        yield test, value


def _gives(node: ast.expr, span: Span) -> bool:
    """Whether what is computed at the span is the node's value. Python may say of a call where its last line begins.

    Where Python keeps no columns, whether they share a line.
    """
    end = node.end_lineno or node.lineno, node.end_col_offset or 0
    if span.end_col == 0:
        return node.lineno <= span.line <= end[0]
    return (node.lineno, node.col_offset) <= (span.line, span.col) and (span.end_line, span.end_col) == end
