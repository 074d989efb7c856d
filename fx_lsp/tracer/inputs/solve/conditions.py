"""Find the conditions under which code raised: of an `assert`, of the `if`s around a `raise`, of the call of a function
that checks its arguments.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType, TracebackType

from fx_lsp.tracer.failures.frames import expression_at, tracebacks
from fx_lsp.tracer.inputs.solve.attempt import Attempt


@dataclass(frozen=True)
class RaisingCondition:
    """Hold a condition in a frame, and the truth value with which the code would not have raised."""

    frame: FrameType
    test: ast.expr
    truth: bool


def guards(attempt: Attempt) -> Iterator[RaisingCondition]:
    """Yield the conditions that led to a statement which raised, the innermost first."""
    tracebacks = raising(attempt)
    if tracebacks is None:
        return
    traceback, caller = tracebacks
    frame = traceback.tb_frame
    tree = code_of(frame)
    for test, truth in conditions_at(tree, traceback.tb_lineno) if tree is not None else ():
        guard = RaisingCondition(frame, test, truth)
        yield _handed(guard, attempt, caller) or guard


def raising(attempt: Attempt) -> tuple[TracebackType, TracebackType | None] | None:
    """Return the traceback of the statement that raised the error, if it is in the user's code or in a library other
    than PyTorch, and that of the call of its function; None for any other.
    """
    traceback = attempt.run.error.__traceback__ if attempt.run.error else None
    caller: TracebackType | None = None
    while traceback is not None and traceback.tb_next is not None:
        caller, traceback = traceback, traceback.tb_next
    if traceback is None or attempt.sources.rank(traceback.tb_frame.f_code.co_filename) == 2:
        return None
    return traceback, caller


def is_check(attempt: Attempt) -> bool:
    """Return True if a statement of the user raised the error: `raise`, or `assert`."""
    statement = next((statement for _, statement in statements_raising(attempt)), None)
    return isinstance(statement, ast.Raise | ast.Assert)


def statements_raising(attempt: Attempt) -> Iterator[tuple[FrameType, ast.stmt]]:
    """Yield the simple statements that were running at the error, the innermost first, with frames."""
    for traceback in tracebacks(attempt.run.error, attempt.sources):
        frame, line = traceback.tb_frame, traceback.tb_lineno
        tree = code_of(frame)
        nodes = ast.walk(tree) if tree is not None else ()
        statements = (node for node in nodes if isinstance(node, ast.stmt) and _within([node], line))
        statement = max(statements, key=lambda node: node.lineno, default=None)
        if statement is not None and not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield frame, statement


def conditions_at(tree: ast.AST, line: int) -> list[tuple[ast.expr, bool]]:
    """Return the assertion at a line, or the branches around it, innermost first, with the truth value that
    avoids it.
    """
    conditions: list[tuple[int, ast.expr, bool]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.lineno <= line <= (node.end_lineno or node.lineno):
            return [(node.test, True)]
        if isinstance(node, ast.If):
            branches = ((node.body, False), (node.orelse, True))
            conditions += [(node.lineno, node.test, truth) for branch, truth in branches if _within(branch, line)]
        elif isinstance(node, ast.Match) and _within([s for case in node.cases for s in case.body], line):
            values = [case.pattern.value for case in node.cases if isinstance(case.pattern, ast.MatchValue)]
            conditions += [(node.lineno, ast.Compare(node.subject, [ast.Eq()], [v]), True) for v in values]
    return [(test, truth) for _, test, truth in sorted(conditions, key=lambda item: -item[0])]


def _within(statements: Sequence[ast.stmt], line: int) -> bool:
    return any(s.lineno <= line <= (s.end_lineno or s.lineno) for s in statements)


def _handed(guard: RaisingCondition, attempt: Attempt, caller: TracebackType | None) -> RaisingCondition | None:
    """Return the same condition at the call that passed it: `check(x.dim() == 4, "…")` for `if not condition:
    raise`.
    """
    test, truth = guard.test, guard.truth
    while isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test, truth = test.operand, not truth
    code = guard.frame.f_code
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    if caller is None or not isinstance(test, ast.Name) or test.id not in parameters:
        return None
    call = expression_at(caller, attempt.sources)
    if not isinstance(call, ast.Call):
        return None
    by_keyword = [k.value for k in call.keywords if k.arg == test.id]
    bound = isinstance(call.func, ast.Attribute) and parameters[0] in ("self", "cls")
    position = parameters.index(test.id) - bound
    argument = next(iter([*by_keyword, *call.args[position : position + 1]]), None)
    return RaisingCondition(caller.tb_frame, argument, truth) if argument is not None else None


def code_of(frame: FrameType) -> ast.AST | None:
    """Return the syntax of the function or module that a frame runs; None if its text is unavailable."""
    parsed = _parsed("".join(linecache.getlines(frame.f_code.co_filename)))
    if parsed is None:
        return None
    tree, functions = parsed
    return functions.get(frame.f_code.co_firstlineno, tree)


@lru_cache(maxsize=32)
def _parsed(text: str) -> tuple[ast.Module, Mapping[int, ast.AST]] | None:
    """Return the syntax of a text, and its functions by the lines where they and their decorators begin."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    functions: dict[int, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for line in (min([node.lineno, *(d.lineno for d in node.decorator_list)]), node.lineno):
                functions.setdefault(line, node)
    return tree, functions
