"""Checks of tensors' values that only stop the program where they fail: a trace takes for granted that they pass."""

from __future__ import annotations

import ast
import dis
import linecache
import os
import re
from collections.abc import Iterator
from types import FrameType

import torch

from fx_lsp.model import Remark, Span
from fx_lsp.syntax import parse
from fx_lsp.tracer.call import RUN_CODE
from fx_lsp.tracer.provenance import Sources

_TRUTH = re.compile("POP_JUMP|JUMP_IF|TO_BOOL|UNARY_NOT")
"""Instructions that ask whether a value is true. From Python 3.13 on, a comparison may ask so of what it gives."""
_NO_VALUE = re.compile(f"{_TRUTH.pattern}|CACHE|EXTENDED_ARG|COPY|NOT_TAKEN")
_TOLD = frozenset({"print", "warn", "warning", "warn_once", "warning_once", "info", "debug", "log"})
"""Calls that only tell something."""
_AS_USERS_WRITE = tuple(
    os.path.join(os.path.dirname(torch.__file__), part) + os.sep for part in ("distributions", "nn", "optim")
)
"""The parts of PyTorch that are written as its users write."""


class Checks:
    """Which way a trace goes where code asks for a value and does nothing with it but raise, or tell."""

    def __init__(self, sources: Sources, lines: list[str]) -> None:
        self._sources, self._lines = sources, lines
        self._statements: dict[str, list[ast.If | ast.Assert]] = {}
        self._taken: dict[Remark, None] = {}

    def outcome(self, frame: FrameType | None) -> bool | None:
        """What the value that is asked for below `frame` has to be for the check to pass; None where it is no check."""
        while frame is not None and not self._is_users(frame.f_code.co_filename):
            if frame.f_code is RUN_CODE:
                return None
            frame = frame.f_back
        asked = _asked(frame) if frame is not None else None
        if frame is None or asked is None:
            return None
        found = next(self._found(self._sources.span(frame.f_code, asked, frame.f_lineno)), None)
        if found is None:
            return None
        test, value = found
        chain = self._sources.chain(frame, RUN_CODE)
        text = ast.unparse(test)
        shown = f"`{text if len(text) <= 60 else f'{text[:57]}…'}`"
        file = frame.f_code.co_filename
        where = "" if self._sources.rank(file) == 0 else f" in {os.path.basename(file)}"
        self._taken[Remark(f"the trace takes for granted that the check {shown}{where} passes", (*chain, None)[0])] = (
            None
        )
        return value

    def remarks(self) -> tuple[Remark, ...]:
        """What was taken for granted, each where the code checks it."""
        return tuple(self._taken)

    def _is_users(self, file: str) -> bool:
        return self._sources.rank(file) < 2 or file.startswith(_AS_USERS_WRITE)

    def _found(self, span: Span) -> Iterator[tuple[ast.expr, bool]]:
        """The test that asks for a value at `span`, and what the value has to be."""
        for statement in self._checks(span.file):
            wanted = _passing(statement)
            if wanted is None or not _covers(statement.test, span):
                continue
            values = {value for part, value in _parts(statement.test, wanted) if _covers(part, span)}
            if len(values) == 1:
                yield statement.test, values.pop()

    def _checks(self, file: str) -> list[ast.If | ast.Assert]:
        if file not in self._statements:
            lines = self._lines if file == self._sources.file else [n.rstrip("\n") for n in linecache.getlines(file)]
            try:
                tree = parse("\n".join(lines))
            except (SyntaxError, ValueError, RecursionError):
                tree = ast.Module([], [])
            self._statements[file] = [n for n in ast.walk(tree) if isinstance(n, (ast.If, ast.Assert))]
        return self._statements[file]


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


def _passing(statement: ast.If | ast.Assert) -> bool | None:
    """What a test has to be for the program to go on as if it were not there."""
    if isinstance(statement, ast.Assert):
        return True
    if isinstance(statement.body[-1], ast.Raise) or (not statement.orelse and all(map(_only_tells, statement.body))):
        return False
    return True if statement.orelse and isinstance(statement.orelse[-1], ast.Raise) else None


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


def _covers(node: ast.expr, span: Span) -> bool:
    """Whether the node holds the span, or begins or ends on its line where Python keeps no columns."""
    end_line, end_col = node.end_lineno or node.lineno, node.end_col_offset or 0
    if span.end_col == 0:
        return node.lineno <= span.line <= end_line
    return (node.lineno, node.col_offset) <= (span.line, span.col) and (span.end_line, span.end_col) <= (
        end_line,
        end_col,
    )
