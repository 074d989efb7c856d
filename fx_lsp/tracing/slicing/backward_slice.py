"""Find the statements that one call needs, backwards from the call, and render a text with only those."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from fx_lsp.syntax import DEFINITIONS, FUNCTIONS, is_main_guard
from fx_lsp.tracing.source.parsing import end_of, push_children, split_lines, start_of, walk
from fx_lsp.tracing.source.scopes import alters, binds_of, changes_of, loads_of
from fx_lsp.training.function import is_mode

Path = tuple[ast.stmt, ...]
"""A statement after those around it, the outermost first."""

_IMPORTS = (ast.Import, ast.ImportFrom)
_SCOPED = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_NOT_CONFIGURING = re.compile(r"(load|save)(_\w+)?$|backward$|step$|zero_grad$|share_memory_?$")
_SETTING_UP = re.compile(r"_?(init|initiali[sz]e|set_?up|configure|prepare|freeze|unfreeze)(_|$)")
"""Functions that are called for their effect on their arguments."""
_FORCED = {True: b"True", False: b"False"}


def _none(node: ast.stmt, names: set[str]) -> bool:
    return False


@dataclass
class Backwards:
    """Collect the statements that a call needs: `kept`, and the `names` that are still to be bound.

    Objects of `imported` names are not configured by method calls. `skipped` statements bind nothing; a statement that
    has a result is kept with the names that are `wanted` for it. `read` are the parameters that the last function
    reads. If that is `strict`, a method call counts only if it works in place or switches between training and
    evaluation. `wholes` map variables of parts to those of the objects that have the parts, `choices` are the
    expressions that select the branches to the call, if the needed code would select others.
    """

    imported: Collection[str]
    names: set[str] = field(default_factory=set[str])
    kept: set[ast.stmt] = field(default_factory=set[ast.stmt])
    skipped: Callable[[ast.stmt], bool] = lambda node: False
    wanted: Callable[[ast.stmt], set[str]] = lambda node: set()
    read: set[str] = field(default_factory=set[str])
    strict: bool = False
    wholes: dict[str, str] = field(default_factory=dict[str, str])
    choices: dict[ast.stmt, bytes] = field(default_factory=dict[ast.stmt, bytes])

    def follow(self, body: Sequence[ast.stmt], path: Path, idle: Callable[[ast.stmt, set[str]], bool] = _none) -> None:
        """Keep the statements that `path` needs of the blocks around its last statement and, at last, of the module's
        `body`.

        The heads of `idle` statements are left out; `idle` gets the needed names.
        """
        self.kept.update(path)
        for number in range(len(path) - 1, -1, -1):
            holder = path[number - 1] if number else None
            if isinstance(holder, ast.ClassDef):
                self._class(holder)
                continue
            for block in blocks(holder) if holder is not None else [body]:
                if path[number] in block:
                    whole = number == 0 and isinstance(path[0], DEFINITIONS)
                    before = block if whole else block[: block.index(path[number])]
                    self._block(before, top=number == 0, straight=True)
            if isinstance(holder, ast.If):
                self._choose(holder, path[number], self.names)
            if isinstance(holder, FUNCTIONS):
                self.leave(holder)
            elif holder is not None and not isinstance(holder, (ast.If, ast.While)) and not idle(holder, self.names):
                self.names = (self.names - _loop_targets(holder)) | header_names(holder)

    def choose(self, path: Path) -> None:
        """Select the branches around the last statement of a path."""
        for holder, inner in pairwise(path):
            if isinstance(holder, ast.If):
                self._choose(holder, inner, header_names(holder))

    def _choose(self, holder: ast.If, inner: ast.stmt, names: Collection[str]) -> None:
        """Select the branch with a statement: objects of `names` get the value that selects it."""
        is_taken = inner in holder.body
        chosen = chosen_values(holder.test, names) if is_taken else None
        self.choices[holder] = chosen.encode() if chosen is not None else _FORCED[is_taken]

    def bind(self, block: Sequence[ast.stmt]) -> None:
        """Keep the statements of a completely executed block that bind `names`, with the statements that these need."""
        self._block(block, straight=True)

    def leave(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Continue outside of a function; its call binds its parameters."""
        parameters = {part.arg for part in walk(function.args) if isinstance(part, ast.arg)}
        self.read = self.names & parameters
        self.names -= parameters
        self.names |= _signature_names(function)
        self.names |= {part.id for mode in filter(is_mode, function.decorator_list) for part in _names_in(mode)}

    def _class(self, holder: ast.ClassDef) -> None:
        """Keep the parts of a class that one test may use: everything except its other tests."""
        others = [node for node in holder.body if not getattr(node, "name", "").startswith("test")]
        self.kept.update(others)
        self.names.update(header_names(holder), *(loads_of(node) for node in others))

    def _block(self, block: Sequence[ast.stmt], top: bool = False, straight: bool = False) -> bool:
        """Process a block from its end. If `straight`, it runs once and completely, so a binding of a name is final."""
        for node in block:
            self._note_part(node)
        return any([self._statement(node, top, straight) for node in reversed(block)])

    def _note_part(self, node: ast.stmt) -> None:
        """Record a variable for a part of an object: `group = parser.add_argument_group("model")`."""
        match node:
            case ast.Assign([ast.Name(part)], ast.Call(ast.Attribute(ast.Name(whole), method))):
                if method.startswith("add_") and part != whole:
                    self.wholes[part] = whole
            case _:
                pass

    def _statement(self, node: ast.stmt, top: bool, straight: bool) -> bool:
        if (top and (isinstance(node, (*DEFINITIONS, *_IMPORTS)) or is_main_guard(node))) or node in self.kept:
            return False
        if self.skipped(node):
            return False
        inner = [] if isinstance(node, DEFINITIONS) else blocks(node)
        if inner:
            times = (
                2 if isinstance(node, (ast.For, ast.While)) else 1
            )  # a later iteration may need names that an earlier one binds
            once = straight and isinstance(node, (ast.With, ast.AsyncWith))
            needed = any([self._block(block, straight=once) for _ in range(times) for block in reversed(inner)])
            if needed or _loop_targets(node) & self.names:
                self.kept.add(node)
                self.names |= header_names(node)
            return node in self.kept
        if results := self.wanted(node):
            self.kept.add(node)
            self.names |= results
        binds = binds_of(node)
        if not (binds | changes_of(node) | self._configured(node)) & self.names:
            return bool(results)
        self.kept.add(node)
        if straight and isinstance(node, (ast.Assign, ast.AnnAssign, *DEFINITIONS, *_IMPORTS)):
            self.names -= binds
        self.names |= loads_of(node)
        return True

    def _configured(self, node: ast.stmt) -> set[str]:
        """Return the object that a statement such as `model.eval()` or `parser.add_argument(…)` configures."""
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            return set()
        called = node.value.func
        name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
        if not self.strict and _SETTING_UP.match(name):
            return {argument.id for argument in node.value.args if isinstance(argument, ast.Name)}
        if not isinstance(called, ast.Attribute) or _NOT_CONFIGURING.match(called.attr):
            return set()
        if self.strict and not (called.attr.endswith("_") or called.attr in ("train", "eval") or alters(called.attr)):
            return set()
        root = root_of(called)
        return self._with_wholes(root.id) - set(self.imported) if isinstance(root, ast.Name) else set()

    def _with_wholes(self, name: str) -> set[str]:
        """Return a variable with the variables of the objects that its own is a part of."""
        names = {name}
        while (name := self.wholes.get(name, name)) not in names:
            names.add(name)
        return names


def blocks(node: ast.AST) -> list[list[ast.stmt]]:
    """Return the blocks of a compound statement or a definition, in order; empty for simple statements."""
    inside = [part.body for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ()))]
    blocks_there = [getattr(node, "body", []), *inside, getattr(node, "orelse", []), getattr(node, "finalbody", [])]
    return [block for block in blocks_there if block]


def decorators_of(node: ast.stmt) -> list[ast.expr]:
    """Return the decorators of a function or a class."""
    return node.decorator_list if isinstance(node, DEFINITIONS) else []


def header_nodes(node: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes of a statement outside of its nested statements."""
    stack: list[ast.AST] = []
    push_children(node, stack)
    while stack:
        part = stack.pop()
        if not isinstance(part, ast.stmt):
            yield part
            push_children(part, stack)


def header_names(node: ast.stmt) -> set[str]:
    """Return the names that the head of a compound statement reads."""
    return {part.id for part in header_nodes(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)}


def _names_in(node: ast.AST) -> Iterator[ast.Name]:
    yield from (part for part in walk(node) if isinstance(part, ast.Name))


def _signature_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the names that defaults and annotations read."""
    parts = [node.args, *([node.returns] if node.returns is not None else [])]
    return {part.id for part in walk(*parts) if isinstance(part, ast.Name)}


def root_of(node: ast.AST) -> ast.AST:
    """Return the first node of attributes, subscripts and calls: `model` of `model.blocks[0].to(device)`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node


def in_inner_scope(statement: ast.stmt, call: ast.Call) -> bool:
    """Return True if a call is in a lambda or a comprehension of its statement."""
    return any(call in walk(part) for part in header_nodes(statement) if isinstance(part, _SCOPED))


def _loop_targets(node: ast.stmt) -> set[str]:
    heads: list[ast.expr] = []
    if isinstance(node, (ast.For, ast.AsyncFor)):
        heads = [node.target]
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        heads = [item.optional_vars for item in node.items if item.optional_vars is not None]
    return {part.id for part in walk(*heads) if isinstance(part, ast.Name)}


def chosen_values(test: ast.expr, names: Collection[str]) -> str | None:
    """Return a true expression that sets objects of `names` so that a test is true: it sets `args.model` for
    `args.model == "unet"`. None if the test does not compare with a value.
    """
    match test:
        case ast.BoolOp(ast.Or(), values):
            return next((chosen for value in values if (chosen := chosen_values(value, names)) is not None), None)
        case ast.BoolOp(ast.And(), values):
            chosen = [each for value in values if (each := chosen_values(value, names)) is not None]
            return f"[{', '.join(chosen)}]" if chosen else None
        case ast.Compare(place, [ast.Eq()], [ast.Constant(value)]):
            return _assigned(place, value, names)
        case ast.Compare(place, [ast.In()], [ast.List(values) | ast.Tuple(values)]):
            first = values[0] if values else None
            return _assigned(place, first.value, names) if isinstance(first, ast.Constant) else None
        case _:
            return None


def _assigned(place: ast.expr, value: Any, names: Collection[str]) -> str | None:
    """Return a true expression that assigns a value to an attribute or an item of an object of `names`."""
    root = root_of(place)
    if not isinstance(root, ast.Name) or root.id not in names:
        return None
    match place:
        case ast.Attribute(owner, name):
            return f"[setattr({ast.unparse(owner)}, {name!r}, {value!r})]"
        case ast.Subscript(owner, ast.Constant(key)):
            return f"[{ast.unparse(owner)}.__setitem__({key!r}, {value!r})]"
        case _:
            return None


_Edit = tuple[tuple[int, int], tuple[int, int], bytes]


@dataclass(frozen=True)
class KeptCode:
    """Describe the statements that are `kept` of a text, and what remains of them.

    On the way to the last statement of `path`, branches are taken and loops run once. Only `call` remains of that
    statement; all of it if `call` is None, or with `inside` its kept part. Functions on the way, and those in `plain`,
    lose their decorators except for autograd modes, unless they are `decorated`. None replaces the `unread` arguments
    of the call; `choices` replace the tests of branches.
    """

    kept: Collection[ast.stmt]
    path: Path
    call: ast.Call | None = None
    plain: Collection[ast.stmt] = ()
    unread: Collection[ast.expr] = ()
    inside: bool = False
    decorated: Collection[ast.stmt] = ()
    choices: Mapping[ast.stmt, bytes] = field(default_factory=dict[ast.stmt, bytes])


def render(text: str, body: Sequence[ast.stmt], code: KeptCode) -> dict[int, str]:
    """Return the lines of the kept statements by number, with positions kept."""
    lines = [line.encode("utf-8", "surrogatepass") for line in split_lines(text.removeprefix("\ufeff"))]
    text_by_line: dict[int, str] = {}
    for node in body:
        if node not in code.kept:
            continue
        edits = sorted((*_edits(node, code), *_nothing(node, code.path, code.unread)), reverse=True)
        (first, col), (last, end) = start_of(node), end_of(node)
        part = lines[first - 1 : last]
        part[-1] = part[-1][:end]
        for start, stop, replacement in edits:
            _replace(part, (start[0] - first, start[1]), (stop[0] - first, stop[1]), replacement)
        part[0] = (b"0;" if col else b"").ljust(col) + part[0][col:]
        for number, line in enumerate(part, first):
            text_by_line[number] = line.decode("utf-8", "surrogatepass")
    return text_by_line


def _edits(node: ast.stmt, code: KeptCode) -> Iterator[_Edit]:
    path, call = code.path, code.call
    if node not in code.kept:
        yield start_of(node), end_of(node), b"0"
        return
    if path and node is path[-1] and not code.inside:
        if call is not None:
            yield start_of(node), (call.lineno, call.col_offset), b"("
            yield (call.end_lineno or call.lineno, call.end_col_offset or 0), end_of(node), b")"
        return
    if isinstance(node, DEFINITIONS):
        modes = all(is_mode(decorator) for decorator in node.decorator_list)
        if not modes and node in {*path, *code.plain}.difference(code.decorated):
            yield start_of(node), (node.lineno, node.col_offset), b""
        if node not in path:
            return
    yield from _choice(node, path, code.choices)
    for block in blocks(node):
        for statement in block:
            yield from _edits(statement, code)


def _choice(node: ast.stmt, path: Path, choices: Mapping[ast.stmt, bytes]) -> Iterator[_Edit]:
    """Yield the edit that selects a branch in place of its test; a loop on the way runs once."""
    if isinstance(node, ast.If) and node in choices:
        test, chosen = node.test, choices[node]
    elif isinstance(node, ast.While) and node in path[:-1]:
        test, chosen = node.test, _FORCED[path[path.index(node) + 1] in node.body]
        yield (node.lineno, node.col_offset), (node.lineno, node.col_offset + len("while")), b"if"
    else:
        return
    yield (test.lineno, test.col_offset), (test.end_lineno or test.lineno, test.end_col_offset or 0), chosen


def _nothing(node: ast.stmt, path: Path, unread: Collection[ast.expr]) -> Iterator[_Edit]:
    """Yield the edits that replace unread arguments by None, in the first statement of `path`."""
    for argument in unread if path and node is path[0] else ():
        end = (argument.end_lineno or argument.lineno, argument.end_col_offset or 0)
        yield (argument.lineno, argument.col_offset), end, b"None"


def _replace(lines: list[bytes], start: tuple[int, int], stop: tuple[int, int], replacement: bytes) -> None:
    """Replace the text from `start` to `stop`; the number of lines stays."""
    (first, col), (last, end) = start, stop
    rest = lines[last][end:]
    if first == last:
        lines[first] = lines[first][:col] + replacement.ljust(end - col) + rest
        return
    lines[first] = lines[first][:col] + replacement
    for number in range(first + 1, last):
        lines[number] = b""
    lines[last] = b" " * end + rest
