"""Choose the branch of a trace if the value of a tensor decides: the one that continues. The user sees the choice.

It avoids an error, a warning or an early end; if both sides continue, it enters the body. A loop that only a value ends
runs two iterations.
"""

from __future__ import annotations

import ast
import dis
import linecache
import os
import re
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FrameType, TracebackType

import torch

from fx_lsp.messages.assumptions import (
    CHECK_PASSES,
    HIDDEN_VALUE_ASSUMED,
    LEAVES_SECOND_ITERATION,
    LOOP_ENDS,
    TEST_FAILS,
    TEST_HOLDS,
    TWO_ITERATIONS,
    VALUE_ASSUMED,
)
from fx_lsp.messages.exceptions import NO_VALUES
from fx_lsp.messages.template import RemarkTemplate
from fx_lsp.model import Remark, Span
from fx_lsp.syntax import parse
from fx_lsp.tracer.compat import DATA_DEPENDENT
from fx_lsp.tracer.run.call import RUN_CODE
from fx_lsp.tracer.source.expressions import expression, shown_text
from fx_lsp.tracer.source.provenance import Sources

MAX_DECISIONS = 1_000
"""The most decisions by values in one run: a loop that goes on for longer does not end."""
MAX_READS = 5_000
"""The most reads of random values in one run, likewise."""
_TRUTH = re.compile("POP_JUMP|JUMP_IF|TO_BOOL|UNARY_NOT")
"""Instructions that test whether a value is true. From Python 3.13 on, a comparison may test its result."""
_NO_VALUE = re.compile(f"{_TRUTH.pattern}|CACHE|EXTENDED_ARG|COPY|DUP_TOP|STORE_|NOT_TAKEN")
_TOLD = frozenset({"print", "warn", "warning", "warn_once", "warning_once", "info", "debug", "log"})
"""Calls that only print or log."""
_ENDING = frozenset({"exit", "quit", "_exit", "abort"})
"""Calls that end the process."""
_AS_USERS_WRITE = tuple(
    os.path.join(os.path.dirname(torch.__file__), part) + os.sep for part in ("distributions", "nn", "optim")
)
"""The parts of PyTorch that are written like user code."""


@dataclass(frozen=True)
class _Condition:
    """Describe a test, its value for the program to continue, and the remark for the user.

    `answers` are its values at consecutive evaluations, by iterations of the loop around it.
    """

    test: ast.expr
    answers: tuple[bool, ...]
    told: RemarkTemplate


@dataclass
class _Turns:
    """Count how often one call of a function evaluated the parts of a condition, by their spans."""

    frame: FrameType
    counts: Counter[Span] = field(default_factory=Counter[Span])


class Decisions:
    """Hold the assumptions of a trace on unknown values.

    With `is_rehearsal`, made-up numbers may enter operations, and values that no condition tests are false. With
    `only_checks`, nothing is decided that leads to other operations. `place` is where the first number of a run was
    assumed.
    """

    def __init__(
        self, sources: Sources, lines: list[str], is_rehearsal: bool = False, only_checks: bool = False
    ) -> None:
        self.is_rehearsal, self._only_checks = is_rehearsal, only_checks
        self._sources, self._lines = sources, lines
        self._conditions: dict[str, list[_Condition]] = {}
        self._remarks: dict[Remark, None] = {}
        self._values: dict[Span, Remark] = {}
        self._turns: dict[_Condition, _Turns] = {}
        self._run: FrameType | None = None
        self._count = self._draws = self._reads = 0
        self.place: TracebackType | None = None

    def outcome(self, frame: FrameType | None, only_checks: bool = False) -> bool | None:
        """Return the assumed truth of the value read below `frame`; None if no condition tests it, or with
        `only_checks` none that leads to other operations.
        """
        while frame is not None and not self._is_users(frame.f_code.co_filename):
            if frame.f_code is RUN_CODE:
                return None
            frame = frame.f_back
        asked = _asked(frame) if frame is not None else None
        if frame is None or asked is None or not self._may_decide(frame):
            return None
        span = self._sources.span(frame.f_code, asked, frame.f_lineno)
        for condition in self._conditions_of(frame.f_code.co_filename):
            is_first, turns = self._turn(condition, frame, span)
            if only_checks and condition.told not in _CHECKS:
                continue
            outcomes = {value for part, value in _parts(condition.test, is_first) if _gives(part, span)}
            if len(outcomes) > 1:
                return None
            if outcomes:
                turns.counts[span] += 1
                if turns.counts[span] >= len(condition.answers):
                    turns.counts.clear()
                self._tell(condition, frame)
                return outcomes.pop()
        return None

    def _turn(self, condition: _Condition, frame: FrameType, span: Span) -> tuple[bool, _Turns]:
        """Return the value of a condition in this iteration, and its iterations so far."""
        turns = self._turns.get(condition)
        if turns is None or turns.frame is not frame:
            turns = self._turns[condition] = _Turns(frame)
        return condition.answers[turns.counts[span]], turns

    def next_seed(self, frame: FrameType | None) -> int:
        """Return a seed for random values below `frame`: the same in each run of a target."""
        self._notice_run(frame)
        self._draws += 1
        return self._draws

    def _may_decide(self, frame: FrameType) -> bool:
        """Count a decision of a run; return False if there were too many."""
        self._notice_run(frame)
        self._count += 1
        return self._count <= MAX_DECISIONS

    def may_read(self, frame: FrameType | None) -> bool:
        """Count a read of a random value below `frame`; return False if a run has read too many."""
        self._notice_run(frame)
        self._reads += 1
        return self._reads <= MAX_READS

    def _notice_run(self, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code is not RUN_CODE:
            frame = frame.f_back
        if frame is not self._run:
            self._run, self._count, self._draws, self._reads = frame, 0, 0, 0
            self._turns.clear()

    def _tell(self, condition: _Condition, frame: FrameType) -> None:
        file = frame.f_code.co_filename
        is_own = self._sources.rank(file) == 0
        where = "" if is_own else f" in {os.path.basename(file)}"
        span = _span_of(condition.test, file) if is_own else next(iter(self._sources.chain(frame, RUN_CODE)), None)
        self._remarks[condition.told.remark(span, test=shown_text(condition.test), file=where)] = None

    def note_value(self, frame: FrameType | None, text: str) -> None:
        """Record that the expression evaluated below `frame` gets a made-up value.

        Of several, the first is reported.
        """
        chain = self._sources.chain(frame, RUN_CODE)
        if not chain:
            return
        node = expression(chain[0], self._lines_of(chain[0].file))
        remark = (
            HIDDEN_VALUE_ASSUMED.remark(chain[0], reason=text)
            if node is None
            else VALUE_ASSUMED.remark(chain[0], code=shown_text(node), reason=text)
        )
        self._values.setdefault(chain[0], remark)

    def make_up(self, frame: FrameType | None) -> TracebackType | None:
        """Record that a number is assumed below `frame`; return that place, for an error that it causes."""
        self.note_value(frame, NO_VALUES)
        while frame is not None and not self._sources.rank(frame.f_code.co_filename) < 2:
            frame = frame.f_back
        place = TracebackType(None, frame, frame.f_lasti, frame.f_lineno) if frame is not None else None
        self.place = self.place or place
        return place

    def begin(self) -> None:
        """Forget the made-up numbers of the previous run."""
        self.place = None

    def remarks(self) -> tuple[Remark, ...]:
        """Return the assumptions, each at the code that needs it."""
        return (*self._remarks, *self._values.values())

    def _is_users(self, file: str) -> bool:
        return self._sources.rank(file) < 2 or file.startswith(_AS_USERS_WRITE)

    def _conditions_of(self, file: str) -> list[_Condition]:
        if file not in self._conditions:
            try:
                conditions = _conditions_in(parse("\n".join(self._lines_of(file))), None, False)
                self._conditions[file] = [c for c in conditions if not self._only_checks or c.told in _CHECKS]
            except (SyntaxError, ValueError, RecursionError):
                self._conditions[file] = []
        return self._conditions[file]

    def _lines_of(self, file: str) -> list[str]:
        if file == self._sources.file:
            return self._lines
        return [line.rstrip("\n") for line in linecache.getlines(file)]


def needed(place: TracebackType | None) -> BaseException:
    """Return the error that the value of a tensor is needed at a place."""
    return DATA_DEPENDENT[0](torch.ops.aten._local_scalar_dense.default).with_traceback(place)


@contextmanager
def decided_by(decisions: Decisions) -> Generator[None, None, None]:
    """Make code inside that reads unknown values continue by `decisions`, which record it."""
    token = _current.set(decisions)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def undecided() -> Generator[None, None, None]:
    """Decide nothing inside: code that reads unknown values stops there."""
    token = _current.set(None)
    try:
        yield
    finally:
        _current.reset(token)


def current_decisions() -> Decisions | None:
    """Return the active decisions, or None."""
    return _current.get()


_current: ContextVar[Decisions | None] = ContextVar("decisions", default=None)
_CHECKS = (CHECK_PASSES, LOOP_ENDS)


def _conditions_in(node: ast.AST, loop: ast.AST | None, goes_on: bool) -> Iterator[_Condition]:
    """Yield the conditions of a tree, outer ones first.

    `loop` is the innermost one around it, and `goes_on` is True if code follows it in its function.
    """
    if isinstance(node, ast.Assert):
        yield _Condition(node.test, (True,), CHECK_PASSES)
    elif isinstance(node, ast.If):
        yield from _of_branch(node, loop, goes_on)
    elif isinstance(node, ast.While):
        yield _Condition(node.test, (True, True, False), TWO_ITERATIONS)
    elif isinstance(node, ast.IfExp):
        yield _Condition(node.test, (True,), TEST_HOLDS)
    elif isinstance(node, ast.comprehension):
        yield from (_Condition(test, (True,), TEST_HOLDS) for test in node.ifs)
    elif isinstance(node, ast.BoolOp):
        goes_on_if = isinstance(node.op, ast.And)
        told = TEST_HOLDS if goes_on_if else TEST_FAILS
        yield from (_Condition(part, (goes_on_if,), told) for part in node.values[:-1])
    is_loop = isinstance(node, (ast.For, ast.AsyncFor, ast.While))
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
        loop, goes_on = None, False
    for name, child in ast.iter_fields(node):
        is_body = is_loop and name == "body"
        children = child if isinstance(child, list) else [child]
        for index, part in enumerate(children):
            if isinstance(part, ast.AST):
                is_followed = isinstance(part, ast.stmt) and index + 1 < len(children)
                yield from _conditions_in(part, node if is_body else loop, goes_on or is_body or is_followed)


def _of_branch(node: ast.If, loop: ast.AST | None, goes_on: bool) -> Iterator[_Condition]:
    body, other = node.body, node.orelse
    raises, otherwise = _raises(body), bool(other) and _raises(other)
    if raises and otherwise:
        return
    if raises or (not other and all(map(_only_tells, body))):
        yield _Condition(node.test, (False,), CHECK_PASSES)
    elif otherwise:
        yield _Condition(node.test, (True,), CHECK_PASSES)
    elif _leaves(body) and (goes_on if not other else not _leaves(other)):
        yield _leaving(node.test, True, body, loop)
    elif other and _leaves(other) and not _leaves(body):
        yield _leaving(node.test, False, other, loop)
    else:
        yield _Condition(node.test, (True,), TEST_HOLDS)


def _leaving(test: ast.expr, leaves: bool, block: list[ast.stmt], loop: ast.AST | None) -> _Condition:
    """Return the condition whose test, if it is `leaves`, runs a block that leaves the code around it."""
    ends_loop = isinstance(block[-1], ast.Break) and loop is not None
    only_ends = ends_loop and all(map(_only_tells, block[:-1])) and not getattr(loop, "orelse", None)
    if not isinstance(block[-1], ast.Continue) and (_is_endless(loop) or (ends_loop and not only_ends)):
        return _Condition(test, (not leaves, leaves), LEAVES_SECOND_ITERATION)
    if only_ends:
        return _Condition(test, (not leaves,), LOOP_ENDS)
    return _Condition(test, (not leaves,), TEST_FAILS if leaves else TEST_HOLDS)


def _is_endless(loop: ast.AST | None) -> bool:
    return isinstance(loop, ast.While) and isinstance(loop.test, ast.Constant)


def _leaves(block: Sequence[ast.stmt]) -> bool:
    """Return True if no code after a block runs once the block has."""
    last = block[-1]
    if isinstance(last, ast.If) and last.orelse:
        return _leaves(last.body) and _leaves(last.orelse)
    return isinstance(last, (ast.Return, ast.Break, ast.Continue)) or _raises(block)


def _raises(block: Sequence[ast.stmt]) -> bool:
    return isinstance(block[-1], ast.Raise) or _called(block[-1]) in _ENDING


def _asked(frame: FrameType) -> int | None:
    """Return the instruction that computed the value whose truth is tested now; None if no truth is tested."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if dis.opname[code[at]] == "COMPARE_OP":
        return at
    if not _TRUTH.match(dis.opname[code[at]]):
        return None
    while at > 0 and _NO_VALUE.match(dis.opname[code[at]]):
        at -= 2
    return at


def _only_tells(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Pass) or _called(statement) in _TOLD


def _called(statement: ast.stmt) -> str:
    """Return the name of the called function if a statement is only a call, else ""."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return ""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _parts(test: ast.expr, value: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Yield the separately evaluated parts of a test, and the value of each that gives the whole that value."""
    if isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _parts(part, value)
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand, not value)
    elif isinstance(test, ast.NamedExpr):
        yield from _parts(test.value, value)
    else:
        yield test, value


def _gives(node: ast.expr, span: Span) -> bool:
    """Return True if the expression at the span is the node's value.

    Python may report that a call begins on its last line. Without columns, they match if they share a line.
    """
    end = node.end_lineno or node.lineno, node.end_col_offset or 0
    if span.end_col == 0:
        return node.lineno <= span.line <= end[0]
    return (node.lineno, node.col_offset) <= (span.line, span.col) and (span.end_line, span.end_col) == end


def _span_of(node: ast.expr, file: str) -> Span:
    return Span(file, node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
