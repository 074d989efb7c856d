"""Find statements of the target's file that never ran, and the conditions that decided it."""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, MemberDescriptorType
from typing import Any, TypeAlias

import torch
from torch import nn

from fx_lsp.model import Operand, Span, Unreached
from fx_lsp.tracer.run.tensors import spec_of
from fx_lsp.tracer.run.values.symbols import scalar_text

MAX_NOTES = 8
"""The most evaluations of a condition whose operands are recorded in one run."""
MAX_TEXT = 40
"""The longest displayed value of an operand, in characters."""

_Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
_Condition: TypeAlias = "tuple[ast.expr, bool] | None"
_UNKNOWN = object()


@dataclass
class Coverage:
    """Hold the executed parts of a file: the first lines of entered functions, lines, and operands of conditions.

    `operands` has for each condition (by its start) its operands with their values, `_UNKNOWN` for one that changed;
    `notes` counts how often it was recorded.
    """

    functions: set[int] = field(default_factory=set[int])
    lines: set[int] = field(default_factory=set[int])
    operands: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict[tuple[int, int], "dict[str, Any]"])
    notes: dict[int, int] = field(default_factory=dict[int, int])


class Branches:
    """Hold the conditions of a file by the line on which they are evaluated."""

    def __init__(self, tree: ast.Module) -> None:
        self.deciders: dict[int, list[ast.expr]] = {}
        self._texts: dict[ast.expr, str] = {}
        for node in ast.walk(tree):
            decider = _decider(node)
            if decider is not None:
                self.deciders.setdefault(decider.lineno, []).append(decider)

    def note(self, line: int, frame: FrameType, coverage: Coverage) -> None:
        """Record the operands of the conditions on a line, directly before their evaluation in `frame`."""
        count = coverage.notes[line] = coverage.notes.get(line, 0) + 1
        if count > MAX_NOTES:
            return
        for decider in self.deciders[line]:
            seen = coverage.operands.setdefault((decider.lineno, decider.col_offset), {})
            for operand, value in operands_of(decider, frame):
                text = self._texts.get(operand) or self._texts.setdefault(operand, ast.unparse(operand))
                seen[text] = value if count == 1 or _same(seen.get(text, _UNKNOWN), value) else _UNKNOWN


def _decider(node: ast.AST) -> ast.expr | None:
    if isinstance(node, (ast.If, ast.While)):
        return node.test
    if isinstance(node, (ast.For, ast.AsyncFor)):
        return node.iter
    return node.subject if isinstance(node, ast.Match) else None


def operands_of(node: ast.expr, frame: FrameType) -> Iterator[tuple[ast.expr, Any]]:
    """Yield the largest parts of a condition whose values can be read in a frame without running anything."""
    if isinstance(node, ast.Constant):
        return
    value = value_of(node, frame)
    if value is not _UNKNOWN:
        yield node, value
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from operands_of(child, frame)


def value_of(node: ast.expr, frame: FrameType) -> Any:
    """Return the value of a name, an attribute, an item, a size or a length in a frame; `_UNKNOWN` for anything else.

    Runs neither user code nor an operation of torch.
    """
    try:
        return _value(node, frame)
    except Exception:
        return _UNKNOWN


def _value(node: ast.expr, frame: FrameType) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        for scope in (frame.f_locals, frame.f_globals, vars(builtins)):
            if node.id in scope:
                return scope[node.id]
        return _UNKNOWN
    if isinstance(node, ast.Attribute):
        return _attribute(_value(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript):
        return _item(_value(node.value, frame), node.slice, frame)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if isinstance(node.operand.value, (int, float)) else _UNKNOWN
    return _call(node, frame) if isinstance(node, ast.Call) and not node.keywords else _UNKNOWN


def _attribute(owner: Any, name: str) -> Any:
    if owner is _UNKNOWN:
        return _UNKNOWN
    if isinstance(owner, torch.Tensor):
        return getattr(owner, name) if name in _METADATA else _UNKNOWN
    value = inspect.getattr_static(owner, name, _UNKNOWN)
    if isinstance(value, MemberDescriptorType):
        return value.__get__(owner)
    if value is _UNKNOWN and isinstance(owner, nn.Module):
        held = (owner._parameters, owner._buffers, owner._modules)
        return next((values[name] for values in held if name in values), _UNKNOWN)
    return _UNKNOWN if hasattr(type(value), "__get__") else value


def _item(owner: Any, index: ast.expr, frame: FrameType) -> Any:
    if type(owner) not in (tuple, list, dict, torch.Size):
        return _UNKNOWN
    key = _value(index, frame)
    return _UNKNOWN if key is _UNKNOWN else owner[key]


def _call(node: ast.Call, frame: FrameType) -> Any:
    arguments = [_value(argument, frame) for argument in node.args]
    if any(argument is _UNKNOWN for argument in arguments):
        return _UNKNOWN
    if isinstance(node.func, ast.Name):
        is_length = node.func.id == "len" and len(arguments) == 1 and _value(node.func, frame) is len
        return len(arguments[0]) if is_length and isinstance(arguments[0], _SIZED) else _UNKNOWN
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _SIZES:
        return _UNKNOWN
    owner = _value(node.func.value, frame)
    return getattr(owner, node.func.attr)(*arguments) if isinstance(owner, torch.Tensor) else _UNKNOWN


_METADATA = frozenset({"shape", "ndim", "dtype", "device", "is_cuda", "requires_grad"})
_SIZES = frozenset({"size", "dim", "ndimension", "numel"})
_SIZED = (tuple, list, dict, str, torch.Size, nn.ModuleList, nn.Sequential)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return type(one) is type(other) and isinstance(one, (bool, int, float, str)) and one == other


def shown_value(value: Any) -> str | None:
    """Return a value as text: a tensor as its spec, a plain value as its literal; None for anything else."""
    if isinstance(value, torch.Tensor):
        return str(spec_of(value))
    if (symbolic := scalar_text(value)) is not None:
        return symbolic
    if isinstance(value, (tuple, list, dict)) and not value:
        return repr(value)
    plain = isinstance(value, (bool, int, float, str, type(None), torch.dtype, torch.device))
    text = repr(value) if plain else ""
    return text if text and len(text) <= MAX_TEXT else None


@dataclass(frozen=True)
class _Reader:
    """Match the statements of a file with one run. `stopped` are the lines at which its error was raised."""

    file: str
    coverage: Coverage
    stopped: frozenset[int]

    def ran(self, statement: ast.stmt) -> bool:
        """Return True if the statement, or the first line of a compound one, was reached."""
        lines = self.coverage.lines
        if isinstance(statement, (ast.Try, ast.With, ast.AsyncWith)) and any(map(self.ran, statement.body)):
            return True
        return any(line in lines for line in _own_lines(statement))

    def block(self, statements: Sequence[ast.stmt]) -> Iterator[Unreached]:
        """Yield the unreached code of a block whose first statement was reached."""
        before: ast.stmt | None = None
        coded = [s for s in statements if _has_code(s)]
        for index, statement in enumerate(coded):
            if not self.ran(statement):
                if before is not None:
                    yield from self.after(before, coded[index:])
                return
            yield from self.inside(statement)
            before = statement

    def inside(self, statement: ast.stmt) -> Iterator[Unreached]:
        """Yield the unreached code inside an executed statement."""
        if isinstance(statement, ast.If):
            yield from self.branch(statement, statement.body, statement.test, False)
            yield from self.branch(statement, statement.orelse, statement.test, True)
        elif isinstance(statement, ast.While):
            yield from self.branch(statement, statement.body, statement.test, False)
        elif isinstance(statement, (ast.For, ast.AsyncFor)):
            if self.reaches(statement.body):
                yield from self.block(statement.body)
            elif not self.failed_at(statement.iter):
                operands = self.operands(statement.iter, statement.iter)
                yield Unreached(self.all_of(statement.body), "empty", self.span(statement.iter), operands=operands)
        elif isinstance(statement, ast.Match):
            for case in statement.cases:
                if self.reaches(case.body):
                    yield from self.block(case.body)
                elif not self.failed_at(statement.subject) and not _raises(case.body):
                    operands = self.operands(statement.subject, statement.subject)
                    yield Unreached(self.all_of(case.body), "subject", self.span(statement.subject), operands=operands)
        elif isinstance(statement, (ast.With, ast.AsyncWith)):
            yield from self.block(statement.body)
        elif isinstance(statement, ast.Try):
            for part in (statement.body, *(h.body for h in statement.handlers), statement.orelse, statement.finalbody):
                if self.reaches(part):
                    yield from self.block(part)

    def branch(self, statement: ast.stmt, body: Sequence[ast.stmt], test: ast.expr, truth: bool) -> Iterator[Unreached]:
        """Yield the unreached code of a branch; the branch itself if its condition never had the opposite of this truth
        value.
        """
        coded = [s for s in body if _has_code(s)]
        if not coded:
            return
        if self.reaches(coded):
            yield from self.block(coded)
        elif not self.failed_at(test) and coded[0].lineno > _last_line(test) and not _raises(coded):
            part = self.deciding(test, truth)
            yield Unreached(self.all_of(coded), "condition", self.span(part), truth, self.operands(part, test))

    def after(self, before: ast.stmt, rest: Sequence[ast.stmt]) -> Iterator[Unreached]:
        """Yield the unreached code after a statement, with the reason: it left the block, or it raised."""
        exits = list(self.exits(before))
        if len(exits) == 1:
            left, condition = exits[0]
            if condition is None:
                yield Unreached(self.all_of(rest), "left", exit=self.span(left))
                return
            part = self.deciding(*condition)
            operands = self.operands(part, condition[0])
            yield Unreached(self.all_of(rest), "left", self.span(part), condition[1], operands, self.span(left))
        elif not exits and not self.stopped.isdisjoint(range(before.lineno, _last_line(before) + 1)):
            yield Unreached(self.all_of(rest), "failed")

    def exits(
        self, statement: ast.stmt, condition: _Condition = None, in_loop: bool = False
    ) -> Iterator[tuple[ast.stmt, _Condition]]:
        """Yield the statements inside an executed one that left the block, each with the innermost condition around it.

        A statement that ends a loop (`in_loop`) inside of it only leaves that loop.
        """
        if not self.ran(statement) or isinstance(statement, _DEFINITIONS):
            return
        if isinstance(statement, ast.Return) or (isinstance(statement, (ast.Break, ast.Continue)) and not in_loop):
            yield statement, condition
            return
        loop = in_loop or isinstance(statement, (ast.For, ast.AsyncFor, ast.While))
        for part in ("body", "orelse", "finalbody"):
            asked = (statement.test, part == "body") if isinstance(statement, ast.If) else condition
            for child in getattr(statement, part, ()):
                yield from self.exits(child, asked, loop)
        for part in (*getattr(statement, "cases", ()), *getattr(statement, "handlers", ())):
            for child in part.body:
                yield from self.exits(child, None, loop)

    def reaches(self, statements: Sequence[ast.stmt]) -> bool:
        """Return True if the first of some statements ran."""
        first = next((s for s in statements if _has_code(s)), None)
        return first is not None and self.ran(first)

    def failed_at(self, node: ast.expr) -> bool:
        """Return True if the run ended in an expression."""
        return not self.stopped.isdisjoint(range(node.lineno, _last_line(node) + 1))

    def deciding(self, test: ast.expr, truth: bool) -> ast.expr:
        """Return the part of a condition that made it `truth`: for `a is not None and b`, the first that was false."""
        if not isinstance(test, ast.BoolOp) or isinstance(test.op, ast.Or) is not truth:
            return test
        seen = self.coverage.operands.get((test.lineno, test.col_offset), {})
        for part in test.values:
            part_truth = _truth(part, seen)
            if part_truth is truth:
                return part
            if part_truth is None:
                return test
        return test

    def operands(self, part: ast.expr, decider: ast.expr) -> tuple[Operand, ...]:
        """Return the operands of a part of a condition that had the same values at every evaluation."""
        seen = self.coverage.operands.get((decider.lineno, decider.col_offset), {})
        texts = dict.fromkeys(ast.unparse(n) for n in ast.walk(part) if isinstance(n, ast.expr))
        shown = ((text, shown_value(seen[text])) for text in texts if text in seen and seen[text] is not _UNKNOWN)
        return tuple(Operand(text, value) for text, value in shown if value is not None)

    def all_of(self, statements: Sequence[ast.stmt]) -> Span:
        """Return the span of some statements."""
        first, last = statements[0], statements[-1]
        return Span(self.file, first.lineno, first.col_offset, _last_line(last), last.end_col_offset or 0)

    def span(self, node: ast.stmt | ast.expr) -> Span:
        """Return the span of a statement or an expression."""
        return Span(self.file, node.lineno, node.col_offset, _last_line(node), node.end_col_offset or 0)


def unreached(tree: ast.Module, file: str, coverage: Coverage, stopped: Sequence[Span] = ()) -> tuple[Unreached, ...]:
    """Return the unreached statements of executed functions in a file.

    `stopped` are the expressions at which the run ended with an error. Code that only raises is left out: a check that
    passes is normal.
    """
    reader = _Reader(file, coverage, frozenset(span.line for span in stopped if span.file == file))
    return tuple(
        unreached
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and _first_line(node) in coverage.functions
        for unreached in reader.block(node.body)
    )


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _first_line(node: _Function | ast.ClassDef) -> int:
    return min([node.lineno, *(d.lineno for d in node.decorator_list)])


def _last_line(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def _own_lines(statement: ast.stmt) -> range:
    """Return the lines of a statement without those of its body."""
    first = _first_line(statement) if isinstance(statement, _DEFINITIONS) else statement.lineno
    body: Sequence[ast.stmt] = getattr(statement, "body", ())
    if isinstance(statement, ast.Match):
        return range(first, _last_line(statement.subject) + 1)
    return range(first, max(body[0].lineno, first + 1) if body else _last_line(statement) + 1)


def _has_code(statement: ast.stmt) -> bool:
    """Return True if Python executes anything for a statement."""
    if isinstance(statement, ast.Expr):
        return not isinstance(statement.value, ast.Constant)
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None
    return not isinstance(statement, (ast.Global, ast.Nonlocal))


def _raises(statements: Sequence[ast.stmt]) -> bool:
    return isinstance(statements[-1], ast.Raise)


def _truth(node: ast.expr, seen: Mapping[str, Any]) -> bool | None:
    """Return the truth value of a condition from the values of its operands, None if they do not determine it."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _truth(node.operand, seen)
        return None if inner is None else not inner
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = (_plain(side, seen) for side in (node.left, node.comparators[0]))
        compare = _COMPARISONS.get(type(node.ops[0]))
        if compare is None or left is _UNKNOWN or right is _UNKNOWN:
            return None
        if isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return compare(left, right)
        plain = all(isinstance(side, (bool, int, float, str)) for side in (left, right))
        return compare(left, right) if plain else None
    value = _plain(node, seen)
    return bool(value) if isinstance(value, (bool, int, float, str, type(None), tuple, list, dict)) else None


def _plain(node: ast.expr, seen: Mapping[str, Any]) -> Any:
    return node.value if isinstance(node, ast.Constant) else seen.get(ast.unparse(node), _UNKNOWN)


_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
