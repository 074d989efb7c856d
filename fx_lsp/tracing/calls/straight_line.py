"""Find the calls of a target in straight-line code, by the names and variables that refer to it. Reads syntax only."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fx_lsp.model import Target
from fx_lsp.syntax import DEFINITIONS, FUNCTIONS
from fx_lsp.tracing.calls.pytest_calls import expects_error, fixtures_of, is_setup, is_test_class, required
from fx_lsp.tracing.slicing.backward_slice import Path, blocks, header_nodes, in_inner_scope, root_of
from fx_lsp.tracing.slicing.module_slice import SourceGraph
from fx_lsp.tracing.source.parsing import walk

PER_SCOPE = 2
"""The most calls of one function that count."""
_LEADS, _BY_HELPER = 2, 3
"""The ranks of a call of code that leads to the target, and of a function of the same file that does, all of which
would run.
"""
_DOUBTFUL = 4
MADE = 5
"""The rank of a call that only creates an instance of the target's class, or of a class that uses it."""
_REMOTE = 6
"""The rank of a call of an object related to the target, which may call it."""


@dataclass(frozen=True)
class Known:
    """Hold a file's names for the target and for code that leads to it: `names`, and attributes of the module
    `aliases`.

    `direct` are the names of the target itself (of its class, for a method), `classes` those that are classes,
    `programs` functions that do more than call it; `leading` are the attributes of `aliases` that count. With `passed`,
    a function that receives one of them as an argument is assumed to call it: `spawn(worker, args=(…))`. `methods` are
    those of its class that call the target on their own object, and `helpers` are functions of the calling file.
    """

    names: frozenset[str]
    direct: frozenset[str]
    classes: frozenset[str]
    programs: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()
    leading: frozenset[str] = frozenset()
    passed: bool = False
    methods: frozenset[str] = frozenset()
    helpers: frozenset[str] = frozenset()

    def named(self, node: ast.AST) -> str | None:
        """Return the name of the target's file that an expression refers to, if it leads to the target; else None."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.aliases:
            return node.attr if node.attr in self.leading else None
        return node.id if isinstance(node, ast.Name) and node.id in self.names else None


@dataclass(frozen=True)
class TargetCall:
    """Hold a call: `rank` 0 is the target itself; `path` leads to its statement, all of which is needed if `whole`.

    If the call is `indirect`, the called function calls the target, with other arguments. `origin` leads to the only
    statement that creates the called object, if there is one.
    """

    rank: int
    call: ast.Call
    path: Path
    whole: bool
    indirect: bool = False
    origin: Path = ()


def calls_in(graph: SourceGraph, callees: Known, target: Target, local_imports: bool = False) -> list[TargetCall]:
    """Return the calls in the module's own statements, in its functions and in tests, the best of each.

    With `local_imports`, functions may import the target themselves.
    """
    index, module = graph.index, _TargetVariables(callees, target)

    def concerned(number: int) -> bool:
        read = index.loads(number)
        return not read.isdisjoint(callees.names | callees.aliases) or not read.isdisjoint(module.variables)

    own = ([node] for number, node in enumerate(index.body) if concerned(number))
    calls = _best(item for block in own for item in _in_scope(block, (), module))
    fixtures = {
        name: any(mentioned) for name, node in fixtures_of(index).items() if (mentioned := module.mentions(*node.body))
    }

    def in_function(path: Path, function: ast.FunctionDef, held: Mapping[str, bool]) -> list[TargetCall]:
        asked = {name: fixtures[name] for name in required(function) if name in fixtures}
        scope = _TargetVariables(callees, target, {**module.variables, **held, **asked})
        return _best(_in_scope(function.body, path, scope))

    for number, node in enumerate(index.body):
        if isinstance(node, ast.FunctionDef):
            if local_imports or concerned(number) or not fixtures.keys().isdisjoint(required(node)):
                calls += in_function((node,), node, {})
        elif isinstance(node, ast.ClassDef) and is_test_class(node):
            held = _held(node, module)
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name.startswith("test"):
                    calls += in_function((node, method), method, held)
    return calls


def calling_methods(definition: ast.ClassDef, name: str) -> frozenset[str]:
    """Return the methods of a class that call one of them on their own object, directly or indirectly.

    A method that calls `self(…)` calls `forward`. Methods that train are left out.
    """
    methods = [node for node in definition.body if isinstance(node, FUNCTIONS) and not trains(node)]
    called = {method.name: _called_on_self(method) for method in methods}
    leading, waiting = set[str](), [name]
    while waiting:
        last = waiting.pop()
        fresh = {method for method, names in called.items() if last in names} - leading - {name}
        leading |= fresh
        waiting += fresh
    return frozenset(leading)


def _called_on_self(method: ast.stmt) -> set[str]:
    """Return the names of the methods that a method calls on its own object."""
    calls = [node.func for node in walk(method) if isinstance(node, ast.Call)]
    own = {"forward" for function in calls if isinstance(function, ast.Name) and function.id == "self"}
    attributes = (function for function in calls if isinstance(function, ast.Attribute))
    return own | {f.attr for f in attributes if isinstance(f.value, ast.Name) and f.value.id == "self"}


def trains(node: ast.stmt) -> bool:
    """Return True if a function trains: it would be run as a whole."""
    return any(isinstance(n, ast.Attribute) and n.attr in ("backward", "step", "parse_args") for n in walk(node))


@dataclass
class _TargetVariables:
    """Track variables that hold objects created with the target, and whether they are the target itself (an instance of
    it).

    `origins` are the statements that create the objects, with the statements around each.
    """

    known: Known
    target: Target
    variables: dict[str, bool] = field(default_factory=dict[str, bool])
    origins: dict[str, list[Path]] = field(default_factory=dict[str, list[Path]])

    def leads(self, node: ast.AST) -> bool | None:
        """Return whether a name or an attribute is the target itself; None if it does not lead to it."""
        direct = self.variables.get(_dotted(node))
        if direct is not None:
            return direct
        name = self.known.named(node)
        return None if name is None else name in self.known.direct

    def mentions(self, *nodes: ast.AST) -> list[bool]:
        """Return, for each part of expressions that leads to the target, whether it is the target itself."""
        return [direct for part in walk(*nodes) if (direct := self.leads(part)) is not None]

    def bind(self, path: Path) -> None:
        """Record the assignments of the last statement of a path; `body, head = Body(), Head()` assigns each."""
        match path[-1]:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(
                values
            ):
                for target, value in zip(targets, values, strict=True):
                    self._bind(ast.copy_location(ast.Assign([target], value), path[-1]), path)
            case statement:
                self._bind(statement, path)

    def _bind(self, statement: ast.stmt, path: Path) -> None:
        """Record one assignment of the last statement of a path."""
        names = [part for part in header_nodes(statement) if isinstance(part, (ast.Name, ast.Attribute))]
        mentioned = [direct for part in names if not _is_store(part) and (direct := self.leads(part)) is not None]
        if mentioned and not isinstance(statement, DEFINITIONS):
            read = {_dotted(part) for part in names if not _is_store(part)}
            bound = {_dotted(part) for part in names if _is_store(part)} - {""}
            self.variables.update(dict.fromkeys(bound, any(mentioned)))
            for name in bound - read:
                self.origins.setdefault(name, []).append(path)

    def origin(self, call: ast.Call) -> Path:
        """Return the path to the only statement that creates the called object; () without one, or with several."""
        paths = self.origins.get(_dotted(call.func), [])
        return paths[0] if len(paths) == 1 else ()

    def rank(self, call: ast.Call) -> int | None:
        """Return how directly a call enters the target: 0 calls it; None if it does not seem to."""
        function, kind, last = call.func, self.target.kind, self.target.name.rpartition(".")[2]
        direct = self.variables.get(_dotted(function))
        if direct is not None:
            return 0 if direct and kind == "module" else 1
        name = self.known.named(function)
        arguments = bool(call.args or call.keywords)
        if name is not None:
            return self._rank_of_name(name, arguments)
        if isinstance(function, ast.Call):
            mentioned = self.mentions(function)
            return None if not mentioned else 0 if any(mentioned) and kind == "module" else 1
        root = root_of(function)
        if not isinstance(function, ast.Attribute) or not isinstance(root, ast.Name) or not self.mentions(function):
            return None
        if function.attr in (last if kind == "method" else "forward", *self.known.methods):
            return int(function.attr in self.known.methods)
        if not arguments or root.id not in self.variables:
            return None
        return _DOUBTFUL if self.variables[root.id] else _REMOTE

    def _rank_of_name(self, name: str, arguments: bool) -> int | None:
        """Return how directly calling `name`, with or without `arguments`, enters the target."""
        if name in self.known.classes:
            return MADE if self.target.kind != "function" else None
        if name in self.known.direct:
            return 0
        leads = (_LEADS, _BY_HELPER)[name in self.known.helpers]
        return leads if arguments and name not in self.known.programs else None

    def is_passed_to(self, call: ast.Call) -> bool:
        """Return True if an argument of the call is a function that leads to the target, and may be called."""
        values = [*call.args, *(keyword.value for keyword in call.keywords)] if self.known.passed else []
        return self.known.named(call.func) is None and any(self.known.named(argument) for argument in values)


def _held(node: ast.ClassDef, module: _TargetVariables) -> dict[str, bool]:
    """Return the attributes of `self` that the set-up of a test class creates with the target."""
    scope = _TargetVariables(module.known, module.target, dict(module.variables))
    for method in node.body:
        if is_setup(method):
            list(_in_scope(blocks(method)[0], (), scope))
    return {name: direct for name, direct in scope.variables.items() if name.startswith("self.")}


def _best(calls_of_scope: Iterable[TargetCall]) -> list[TargetCall]:
    """Return the most direct calls of a scope; doubtful ones only if there are no others.

    If none calls the target itself, one that creates an instance of it is added.
    """
    chosen = sorted(calls_of_scope, key=lambda item: item.rank)
    instances = [item for item in chosen if item.rank == MADE and chosen[0].rank][:1]
    calls = [item for item in chosen if item.rank < _DOUBTFUL or chosen[0].rank == item.rank]
    return instances + [item for item in calls if item.rank != MADE][:PER_SCOPE]


def _in_scope(block: Sequence[ast.stmt], path: Path, scope: _TargetVariables) -> Iterator[TargetCall]:
    for statement in block:
        here = (*path, statement)
        scope.bind(here)
        if isinstance(statement, DEFINITIONS):
            continue
        for part in sorted((n for n in header_nodes(statement) if isinstance(n, ast.Call)), key=_place):
            rank = 1 if scope.is_passed_to(part) else scope.rank(part)
            if rank is not None:
                whole = in_inner_scope(statement, part)
                if not (whole and blocks(statement)):
                    yield TargetCall(rank, part, here, whole, scope.is_passed_to(part), scope.origin(part))
        if not any(expects_error(part) for part in header_nodes(statement)):
            for inner in blocks(statement):
                yield from _in_scope(inner, here, scope)


def _place(node: ast.Call) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _dotted(node: ast.AST) -> str:
    """Return `x` or `self.block`; "" for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _is_store(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Store)
