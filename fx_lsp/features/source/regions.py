"""Find the names that a few statements of a function read and bind, and their signature as a separate function."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from fx_lsp.features.source.bindings import SCOPES, Flow, free_names, parameters
from fx_lsp.syntax import FUNCTIONS, FunctionNode, blocks_of

_NEW = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.List, ast.Dict, ast.ListComp, ast.DictComp)
# fmt: off
_NEVER = (
    ast.Return, ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith, ast.Break, ast.Continue, ast.Global,
    ast.Nonlocal, ast.Delete, ast.Import, ast.ImportFrom, ast.ClassDef, ast.AsyncFunctionDef,
)
_FRAME_NAMES = frozenset({"super", "__class__", "locals", "vars", "dir", "eval", "exec"})
_ALTERING = frozenset({
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse",
    "setdefault", "sort", "update",
})
# fmt: on


@dataclass(frozen=True)
class Place:
    """Locate statements of one block: `path` are the blocks from the function's body inwards, each with the index of
    the statement that contains the next one; the last is the block itself, with `start` and `stop`.
    """

    function: FunctionNode
    path: tuple[tuple[list[ast.stmt], int], ...]
    block: list[ast.stmt]
    start: int
    stop: int

    @property
    def statements(self) -> list[ast.stmt]:
        """Return the statements."""
        return self.block[self.start : self.stop]

    @property
    def around(self) -> list[ast.stmt]:
        """Return the statements around the place, the outermost first."""
        return [block[index] for block, index in self.path]


def first_line(statement: ast.stmt) -> int:
    """Return the first line of a statement, including its decorators."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def last_line(statement: ast.stmt) -> int:
    """Return the last line of a statement."""
    return statement.end_lineno or statement.lineno


def place_of(tree: ast.AST, first: int, last: int) -> Place | None:
    """Return the whole statements, in the innermost block of a function, that cover the lines from `first` to `last`;
    None without any.
    """
    innermost: Place | None = None
    for function in (n for n in ast.walk(tree) if isinstance(n, FUNCTIONS)):
        if function.body[0].lineno <= first and last <= last_line(function):
            place = _within(function, first, last)
            innermost = place if place is not None else innermost  # ast.walk yields inner functions later
    return innermost


def _within(function: FunctionNode, first: int, last: int) -> Place | None:
    block, path = function.body, list[tuple[list[ast.stmt], int]]()
    while True:
        touched = [i for i, s in enumerate(block) if first_line(s) <= last and first <= last_line(s)]
        if not touched:
            return None
        only = block[touched[0]]
        inner = None
        if len(touched) == 1 and not isinstance(only, SCOPES):
            inner = next((b for b in blocks_of(only) if first_line(b[0]) <= first and last <= last_line(b[-1])), None)
        if inner is None or inner[0].lineno == only.lineno:
            return Place(function, tuple(path), block, touched[0], touched[-1] + 1)
        path.append((block, touched[0]))
        block = inner


@dataclass(frozen=True)
class RegionSignature:
    """Hold the names that statements need, and the names that later code reads."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def signature_of_region(place: Place) -> RegionSignature | None:
    """Return the parameters and results of the statements as a separate function; None if they cannot be one.

    They can be one if control leaves them only at their end, every bound name that is read later is definitely bound,
    and running them twice does not change earlier objects.
    """
    local = _local_names(place.function)
    inside = [node for statement in place.statements for node in ast.walk(statement)]
    if (
        local is None
        or any(isinstance(s, (ast.Try, *_try_star())) for s in place.around)
        or not _is_plain(place.statements)
    ):
        return None
    flow = Flow(local)
    surely = flow.run(place.statements, frozenset())
    bound = {name for name in flow.bound if name in local}
    if _alters_others(inside) or bound & _captured(place):
        return None
    outputs = [name for name in flow.bound if name in _read_later(place, local)]
    needed = dict.fromkeys([*flow.read, *(name for name in outputs if name not in surely)])
    before = _bound_before(place, local)
    if not outputs or not before.issuperset(needed):
        return None
    owner = _owner(place.function, bound)
    return RegionSignature(tuple(name for name in needed if name != owner), tuple(outputs))


def _try_star() -> tuple[type[ast.stmt], ...]:
    kind = getattr(ast, "TryStar", None)
    return () if kind is None else (kind,)


def _is_plain(statements: Sequence[ast.AST]) -> bool:
    """Return True if statements do nothing that depends on their enclosing function."""
    pending = list(statements)
    while pending:
        node = pending.pop()
        if isinstance(node, _NEVER) or (isinstance(node, ast.AnnAssign) and node.value is None):
            return False
        if isinstance(node, ast.comprehension) and node.is_async:
            return False
        if any(isinstance(n, ast.Name) and n.id in _FRAME_NAMES for n in (node, *ast.iter_child_nodes(node))):
            return False
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            pending += ast.iter_child_nodes(node)
    return True


def _alters_others(inside: Sequence[ast.AST]) -> bool:
    """Return True if the statements may change an object in place that they have not created: it would change twice."""
    for node in inside:
        changed: ast.expr | None = None
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
            changed = node
        elif isinstance(node, ast.AugAssign):
            changed = node.target
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in _ALTERING or (name.endswith("_") and not name.endswith("__")):
                changed = node.func.value
        if changed is not None and not _is_made(_root(changed), inside):
            return True
    return False


def _is_made(name: str | None, inside: Sequence[ast.AST]) -> bool:
    """Return True if a name is only ever bound to new objects of the region. A call may return its argument."""
    bindings = [(t, n.value) for n in inside if isinstance(n, ast.Assign) for t in n.targets]
    plain = [t for t, _ in bindings if isinstance(t, ast.Name)]
    values = [value for t, value in bindings if isinstance(t, ast.Name) and t.id == name]
    augmented = [n.target for n in inside if isinstance(n, ast.AugAssign)]
    stored = [n for n in inside if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]
    whole = {id(n) for n in (*plain, *augmented)}
    return bool(values) and all(isinstance(v, _NEW) for v in values) and all(id(n) in whole for n in stored)


def _root(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _local_names(function: FunctionNode) -> frozenset[str] | None:
    """Return the names of a function's own scope; None if some are declared `global` or `nonlocal`."""
    flow = Flow(None)
    flow.run(function.body, frozenset())
    if any(isinstance(node, (ast.Global, ast.Nonlocal)) for node in ast.walk(function)):
        return None
    return frozenset([*flow.bound, *parameters(function.args)])


def _owner(function: FunctionNode, bound: set[str]) -> str | None:
    """Return `self` if it is never rebound: the region's function sees it as a closure."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    flow = Flow(None)
    flow.run(function.body, frozenset())
    name = arguments[0].arg if arguments else ""
    return name if name in ("self", "cls") and name not in flow.bound and name not in bound else None


def _captured(place: Place) -> set[str]:
    """Return the names that functions outside of the region read from its enclosing scope."""
    region = {id(node) for statement in place.statements for node in ast.walk(statement)}
    names: set[str] = set()
    for node in ast.walk(place.function):
        if isinstance(node, SCOPES) and node is not place.function and id(node) not in region:
            names.update(free_names(node))
    return names


def _read_later(place: Place, local: frozenset[str]) -> set[str]:
    """Return the names that are read after the region before they are rebound, including by enclosing loops."""
    names: set[str] = set()
    levels = [*place.path, (place.block, place.stop - 1)]
    for block, index in levels:
        flow = Flow(local)
        flow.run(block[index + 1 :], frozenset())
        names.update(flow.read)
    for statement in place.around:
        if isinstance(statement, (ast.For, ast.AsyncFor, ast.While)):
            flow = Flow(local)
            test = [ast.Expr(statement.test)] if isinstance(statement, ast.While) else []
            flow.run([*test, *statement.body], _targets(statement))
            flow.run(statement.orelse, frozenset())
            names.update(flow.read)
    return names


def _targets(statement: ast.stmt) -> frozenset[str]:
    """Return the names that a loop or a `with` binds before its body."""
    targets: list[ast.expr | None] = []
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        targets = [statement.target]
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        targets = [item.optional_vars for item in statement.items]
    return frozenset(n.id for t in targets if t is not None for n in ast.walk(t) if isinstance(n, ast.Name))


def _bound_before(place: Place, local: frozenset[str]) -> set[str]:
    """Return the names that are definitely bound at the start of the region."""
    bound = frozenset(parameters(place.function.args))
    for block, index in place.path:
        bound = Flow(local).run(block[:index], bound)
        bound |= _targets(block[index])
    return set(Flow(local).run(place.block[: place.start], bound))
