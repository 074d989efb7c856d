"""Run the code before a training loop as far as possible: a statement that raises leaves its names absent.

Most errors in such code are due to missing data, and most of a step does not need it.
"""

from __future__ import annotations

import argparse
import ast
import copy
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from fx_lsp.syntax import blocks_of
from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.program.effects import EffectBlocked
from fx_lsp.tracer.run.state import variables_around
from fx_lsp.tracer.source.likely_numbers import number_named, says_number
from fx_lsp.training.step import BACKWARD

_RECORD, _CAUGHT, _ERROR, _NUMBER, _ARGUMENT, _ITEMS = "absent", "caught", "error", "number", "argument", "items"
"""Names in the code around statements. Identifiers of the user have no leading space."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LEFT = (ast.Return, ast.Break, ast.Continue, ast.Pass, ast.Global, ast.Nonlocal)


class AbsentError(AttributeError):
    """An absent value was used; `__cause__` is the error that made it absent."""

    def __init__(self, cause: BaseException) -> None:
        reason = str(cause) if isinstance(cause, EffectBlocked) else f"{type(cause).__name__}: {cause}"
        super().__init__(f"it needs a value that is unavailable: {reason}")


class Absent:
    """A placeholder for a value that is unavailable because of `cause`: any use of it raises AbsentError.

    It `is_code` if it would have been imported. Then its attributes are placeholders, too, and raise when they are
    used: code that only passes `Kind.FIRST` on does not need them.
    """

    cause: BaseException
    is_code: bool

    def __init__(self, error: BaseException, imported: bool) -> None:
        cause = error.__cause__ if isinstance(error, AbsentError) else error
        object.__setattr__(self, "cause", cause or error)
        object.__setattr__(self, "is_code", imported)

    def _raise(self, *args: Any, **kwargs: Any) -> Any:
        cause = object.__getattribute__(self, "cause")
        notes().missed.append(cause)
        raise AbsentError(cause) from cause

    def __getattr__(self, name: str) -> Any:
        if not object.__getattribute__(self, "is_code") or name.startswith("__"):
            self._raise()
        attribute = Absent(object.__getattribute__(self, "cause"), imported=True)
        object.__setattr__(self, name, attribute)
        return attribute

    __setattr__ = __call__ = __iter__ = __len__ = __getitem__ = __setitem__ = __bool__ = _raise
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = _raise
    __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __neg__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _raise
    __enter__ = __exit__ = __int__ = __float__ = __index__ = __matmul__ = _raise


def backward_of(loss: Any) -> Any:
    """Return a loss whose `backward` is called without a gradient; raises the errors of that call."""
    if not isinstance(loss, torch.Tensor):
        loss.backward  # noqa: B018
        return loss
    if torch.is_grad_enabled() and not loss.requires_grad:
        raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
    if loss.numel() != 1:
        raise RuntimeError(f"grad can be implicitly created only for scalar outputs, not for {list(loss.shape)}")
    return loss


@dataclass
class Absences:
    """Collect the errors of `tolerant` statements, and the numbers that are assumed for absent data."""

    errors: list[BaseException] = field(default_factory=list[BaseException])
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    def namespace(self, absent: Callable[[BaseException, bool], Any] | None = None) -> dict[str, Any]:
        """Return the names that tolerant code needs; `absent` returns the placeholder for a name that a failed
        statement binds.
        """
        caught = {f" {_CAUGHT}": (Exception, SystemExit), BACKWARD: backward_of}
        record = absent or self.record
        parts = {f" {_NUMBER}": self._number, f" {_ARGUMENT}": self._argument, f" {_ITEMS}": self._items}
        return {f" {_RECORD}": record, **parts, **caught}

    def _number(self, compute: Callable[[], Any], name: str) -> Any:
        """Return a number of the data, or one that its name suggests if the data is absent, or if the program adds it
        to its options elsewhere.
        """
        try:
            return compute()
        except AttributeError as error:
            if not isinstance(error, AbsentError) and not isinstance(error.obj, argparse.Namespace):
                raise
            self.numbers[name] = number_named(name)
            return self.numbers[name]

    def _argument(self, compute: Callable[[], Any], name: str) -> Any:
        """Return an argument of a function, which may be absent."""
        try:
            return compute()
        except Exception as error:
            return self.record(error, False)

    def _items(self, compute: Callable[[], Any], pattern: Any) -> Iterator[Any]:
        """Yield the items of a loop's iterable; if that fails, one absent item in the form of `pattern`, None for each
        variable.
        """
        empty = object()
        first: Any = empty
        rest: Iterator[Any] = iter(())
        try:
            rest = iter(compute())
            first = next(rest, empty)
        except Exception as error:
            first = _in_form(pattern, self.record(error, False))
        if first is not empty:
            yield first
        yield from rest

    def record(self, error: BaseException, imported: bool) -> Absent:
        """Return the placeholder for the names that a failed statement binds."""
        self.errors.append(error)
        return Absent(error, imported)


def _in_form(pattern: Any, absent: Absent) -> Any:
    return absent if pattern is None else tuple(_in_form(part, absent) for part in pattern)


class _Parts(ast.NodeTransformer):
    """Rewrite expressions that are evidently numbers of data (`len(words)`, `x.shape[1]`) to return one if the data is
    absent, and calls whose results are passed on (`Trainer(read(path))`) to return a placeholder if they raise.
    """

    def __init__(self, passes_absent: bool) -> None:
        self._names: list[str] = []
        self._passes_absent = passes_absent

    def _inside(self, name: str, node: ast.AST) -> Any:
        self._names.append(name)
        try:
            return self.generic_visit(node)
        finally:
            self._names.pop()

    def visit_Assign(self, node: ast.Assign) -> Any:
        """Rewrite with the name of the assigned variable."""
        return self._inside(_last_name(node.targets[0]) if not isinstance(node.targets[0], ast.Tuple) else "", node)

    def visit_keyword(self, node: ast.keyword) -> Any:
        """Rewrite with the name of the keyword."""
        return self._inside(node.arg or "", node)

    def visit_Lambda(self, node: ast.Lambda) -> Any:
        """Skip code that runs later."""
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        """Skip classes, whose names are invisible to an inner function."""
        return node

    def visit_Call(self, node: ast.Call) -> Any:
        """Wrap `len(…)`, `int(…)`, `x.size(0)` and `x.max().item()`."""
        by_name = isinstance(node.func, ast.Name) and node.func.id in ("len", "int")
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if by_name or _NUMBERS_OF_TENSORS.get(method) == len(node.args):
            return self._wrapped(node, _NUMBER, method == "size")
        kinds = (ast.Call, ast.Attribute)
        arguments = (*node.args, *(keyword.value for keyword in node.keywords)) if self._passes_absent else ()
        passed = [argument for argument in arguments if isinstance(argument, kinds)]
        self._inside(self._names[-1] if self._names and _last_name(node.func) in _OF_SEVERAL_NUMBERS else "", node)
        node.args = [self._wrapped(part, _ARGUMENT) if part in passed else part for part in node.args]
        for keyword in node.keywords:
            if keyword.value in passed:
                keyword.value = self._wrapped(keyword.value, _ARGUMENT)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        """Wrap `x.shape[1]`."""
        is_size = isinstance(node.value, ast.Attribute) and node.value.attr == "shape"
        is_item = not isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load)
        return self._wrapped(node, _NUMBER, is_size) if is_size and is_item else self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        """Wrap `data.num_classes`."""
        is_number = isinstance(node.ctx, ast.Load) and _COUNT.search(node.attr)
        return self._wrapped(node, _NUMBER) if is_number else self.generic_visit(node)

    def _wrapped(self, node: ast.expr, function: str, is_size: bool = False) -> ast.expr:
        if _needs_its_function(node):
            return node
        name = (self._names[-1] if self._names else "") or _last_name(node)
        name += "_size" if is_size and not says_number(name) else ""
        nothing = ast.arguments([], [], None, [], [], None, [])
        arguments: list[ast.expr] = [ast.Lambda(nothing, node), ast.Constant(name)]
        call = ast.Call(ast.Name(f" {function}", ast.Load()), arguments, [])
        for part in ast.walk(call):
            if "lineno" in getattr(part, "_attributes", ()) and not hasattr(part, "lineno"):
                ast.copy_location(part, node)
        return call


def _needs_its_function(node: ast.expr) -> bool:
    """Return True if an expression means something else in a lambda: it binds a name, awaits or yields."""
    return any(isinstance(part, (ast.NamedExpr, ast.Await, ast.Yield, ast.YieldFrom)) for part in ast.walk(node))


_OF_SEVERAL_NUMBERS = frozenset({"max", "min", "sum", "round", "abs"})
"""Functions whose result can have the name of their argument."""
_NUMBERS_OF_TENSORS = {"size": 1, "item": 0}
"""The methods of tensors that return a number, with their number of arguments."""
_COUNT = re.compile(
    r"^(n|num|nb)_|^n_?(class|feat)|(vocab|input|output|feature|hidden|image|img|pad|seq)_?(size|dim|len)$|_(idx|index)$"
)
"""The names of attributes that are numbers of data."""


def _last_name(node: ast.AST) -> str:
    """Return the last name in an expression."""
    names = [
        (part.end_lineno or 0, part.end_col_offset or 0, part.attr if isinstance(part, ast.Attribute) else part.id)
        for part in ast.walk(node)
        if isinstance(part, (ast.Attribute, ast.Name)) and getattr(part, "id", "") not in ("len", "int", "max")
    ]
    sensible = [name for *_, name in sorted(names) if name not in ("shape", "size", "max", "item")]
    return sensible[-1] if sensible else ""


def tolerant(tree: ast.Module, functions: Collection[int], line: int = 0) -> ast.Module:
    """Return the module, rewritten so that each statement that raises leaves its names absent, at its top level and in
    the functions that begin at some lines. Numbers of absent data are assumed.

    With the `line` of a call, loops around it run one iteration, and arguments have to be present; else arguments of
    functions may be absent.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and node.lineno < line <= (node.end_lineno or 0):
            _take_turn(node)
    body = _tolerant_block(tree.body, functions, _Parts(passes_absent=line == 0))
    tree.body = [guarded(node) if isinstance(node, ast.ClassDef) else node for node in body]
    return ast.fix_missing_locations(tree)


def with_numbers(tree: ast.Module) -> ast.Module:
    """Return the module with guesses for numbers of missing data, at its top level and in its functions.

    A loop over missing data has one iteration, and arguments may be absent. Classes are not changed; the tree is
    modified.
    """
    _make_up(tree.body, _Parts(passes_absent=True))
    return ast.fix_missing_locations(tree)


def _make_up(block: list[ast.stmt], parts: _Parts) -> None:
    for number, node in enumerate(block):
        for inner in blocks_of(node) if not isinstance(node, ast.ClassDef) else ():
            _make_up(inner, parts)
        if isinstance(node, ast.For) and not _needs_its_function(node.iter):
            _take_turn(node)
        if not blocks_of(node) and not isinstance(node, _LEFT) and not _is_import(node):
            block[number] = parts.visit(node)


def without_lacking_names(tree: ast.Module) -> ast.Module:
    """Return the module, rewritten so that names missing in an import at its top level are absent."""
    statements = [part for node in tree.body for part in _single_imports(node)]
    tree.body = [guarded(node) if _is_import(node) else node for node in statements]
    return ast.fix_missing_locations(tree)


def _single_imports(node: ast.stmt) -> list[ast.stmt]:
    """Return a statement for each name of an import, so that a missing one does not affect the others."""
    if not isinstance(node, ast.ImportFrom) or _is_future(node):
        return [node]
    return [ast.copy_location(ast.ImportFrom(node.module, [alias], node.level), node) for alias in node.names]


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, (ast.Import, ast.ImportFrom)) and not _is_future(node)


def _take_turn(loop: ast.For) -> None:
    """Make a loop over an absent iterable run once."""
    nothing = ast.arguments([], [], None, [], [], None, [])
    arguments = [ast.Lambda(nothing, loop.iter), _pattern(loop.target)]
    call = ast.Call(ast.Name(f" {_ITEMS}", ast.Load()), arguments, [])
    for part in ast.walk(call):
        if "lineno" in getattr(part, "_attributes", ()) and not hasattr(part, "lineno"):
            ast.copy_location(part, loop.iter)
    loop.iter = call


def _pattern(target: ast.expr) -> ast.expr:
    """Return the structure of a loop's target as an expression."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return ast.Tuple([_pattern(part) for part in target.elts], ast.Load())
    return ast.Constant(None)


def _tolerant_block(block: Sequence[ast.stmt], functions: Collection[int], parts: _Parts) -> list[ast.stmt]:
    statements: list[ast.stmt] = []
    for node in (single for whole in block for single in _single_imports(whole)):
        if isinstance(node, _DEFINITIONS):
            _inside(node, functions, parts)
            statements.append(node)
        elif isinstance(node, _LEFT) or _is_future(node):
            statements.append(node)
        elif any(isinstance(part, (*_LEFT, *_DEFINITIONS)) for part in ast.walk(node)):
            for inner in blocks_of(node):
                inner[:] = _tolerant_block(inner, functions, parts)
            statements.append(node)
        else:
            for inner in blocks_of(node):
                inner[:] = _tolerant_block(inner, functions, parts)
            statements.append(guarded(parts.visit(node) if not blocks_of(node) else node))
    return statements


def _inside(node: ast.stmt, functions: Collection[int], parts: _Parts) -> None:
    """Make the functions that only run in part tolerant, also in classes."""
    if isinstance(node, ast.ClassDef):
        for member in node.body:
            _inside(member, functions, parts)
    elif isinstance(node, ast.FunctionDef) and node.lineno in functions:
        node.body = _tolerant_block(node.body, functions, parts)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module == "__future__" or node.names[0].name == "*")


def guarded(node: ast.stmt, is_whole: bool = False) -> ast.stmt:
    """Return a statement that leaves its names absent if it raises.

    With `is_whole`, also the names that it has already bound, the attributes and items that it assigns and the items
    that it would add to a collection.
    """
    imported = isinstance(node, (ast.Import, ast.ImportFrom))
    error = ast.Name(f" {_ERROR}", ast.Load())
    value = ast.Call(ast.Name(f" {_RECORD}", ast.Load()), [error, ast.Constant(imported)], [])
    names = _bound(node)
    targets: list[ast.expr] = [ast.Name(name, ast.Store()) for name in names]
    records: list[ast.stmt] = [ast.Assign(targets, value) if targets else ast.Expr(value)]
    if blocks_of(node) and not isinstance(node, ast.ClassDef) and not is_whole:
        records = [_unless_bound(name, value) for name in names] or [ast.Expr(value)]
    attributes = (ast.Attribute(ast.Name(of, ast.Load()), name, ast.Store()) for of, name in _bound_attributes(node))
    records += [_if_possible(ast.Assign([attribute], value)) for attribute in attributes]
    records += _absent_parts(node, value) if is_whole else []
    handler = ast.ExceptHandler(ast.Name(f" {_CAUGHT}", ast.Load()), f" {_ERROR}", records)
    guarded = ast.Try([node], [handler], [], [])
    for part in ast.walk(handler):
        if "lineno" in getattr(part, "_attributes", ()):
            ast.copy_location(part, node)
    return ast.copy_location(guarded, node)


_COLLECTING = frozenset({"append", "extend", "add", "insert", "appendleft"})


def _absent_parts(node: ast.stmt, value: ast.expr) -> Iterator[ast.stmt]:
    """Yield statements that make absent the attributes and items that a statement assigns, and its additions to
    collections.
    """
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        filled = (collection for part in ast.walk(node) if (collection := _collection(part)) is not None)
        names = dict.fromkeys(target.id for target in filled if isinstance(target, ast.Name))
        yield from (ast.Assign([ast.Name(name, ast.Store())], value) for name in names)
        return
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None) or ast.Pass()]
    for part in (part for target in targets for part in ast.walk(target)):
        if isinstance(part, (ast.Attribute, ast.Subscript)) and isinstance(part.ctx, ast.Store):
            yield _if_possible(ast.Assign([copy.deepcopy(part)], value))
    collection = _collection(node.value) if isinstance(node, ast.Expr) else None
    if collection is not None:
        added = ast.Attribute(copy.deepcopy(collection), "append", ast.Load())
        yield _if_possible(ast.Expr(ast.Call(added, [value], [])))


def _collection(node: ast.AST) -> ast.expr | None:
    """Return `rows` for `rows.append(…)`; None for any other."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.value if isinstance(function, ast.Attribute) and function.attr in _COLLECTING else None


def _if_possible(node: ast.stmt) -> ast.stmt:
    return ast.Try([node], [ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])], [], [])


def _unless_bound(name: str, value: ast.expr) -> ast.stmt:
    """Return a statement that binds a name to a value if it is unbound: a branch that raises keeps an earlier value."""
    read = ast.Expr(ast.Name(name, ast.Load()))
    unbound = ast.ExceptHandler(
        ast.Name("NameError", ast.Load()), None, [ast.Assign([ast.Name(name, ast.Store())], value)]
    )
    return ast.Try([read], [unbound], [], [])


def _bound(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names if alias.name != "*"]
    stored = (part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
    return list(dict.fromkeys(stored))


def _bound_attributes(node: ast.stmt) -> list[tuple[str, str]]:
    """Return the attributes of variables that assignments bind: `self`, `writer` for `self.writer = Writer()`."""
    stored = [target for part in ast.walk(node) if isinstance(part, ast.Assign) for target in part.targets]
    attributes = [part for part in stored if isinstance(part, ast.Attribute)]
    return [(part.value.id, part.attr) for part in attributes if isinstance(part.value, ast.Name)]


def absent_names(function: FunctionType) -> Iterator[tuple[str, Absent]]:
    """Yield the absent values among the names that a function reads of its surroundings, and its defaults."""
    held = variables_around(function)
    held |= {name: function.__globals__.get(name) for name in _global_names(function)}
    held |= function.__kwdefaults__ or {}
    yield from ((name, value) for name, value in held.items() if isinstance(value, Absent))


def _global_names(function: FunctionType) -> list[str]:
    """Return the names that a function and its inner functions read of their module, in the order of the code."""
    names: dict[str, None] = {}
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        names |= dict.fromkeys(code.co_names)
        waiting += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    return list(names)
