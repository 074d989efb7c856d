"""Where a project calls a target: its own file, tests, and files that use either, each call with what it needs.

Reads syntax only."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice

from fx_lsp.model import CallSite, Target
from fx_lsp.syntax import FUNCTIONS, FunctionNode
from fx_lsp.tracing.calls.project_files import ProjectFile, users_of
from fx_lsp.tracing.calls.pytest_calls import test_case
from fx_lsp.tracing.calls.straight_line import MADE, Known, TargetCall, calling_methods, calls_in, trains
from fx_lsp.tracing.slicing.backward_slice import Backwards, Path, decorators_of, render, root_of
from fx_lsp.tracing.slicing.module_slice import SourceGraph
from fx_lsp.tracing.slicing.step_slice import StepPart
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.scopes import loads_of
from fx_lsp.tracing.source.tensor_code import collect_imports

SITES = 4
"""How many call sites a request names at most."""
INSTANCES = 2
"""How many places it names besides that only make an instance of the target's class."""
MAX_DEPTH = 3
"""How many files may stand between the target's and one that calls something which calls the target."""
MAX_USERS = 24
"""How many files that use the target, or what leads to it, are looked through."""
ModuleName = Callable[[str], tuple[str, str, str]]


def call_sites(
    target: Target,
    graph: SourceGraph,
    module: str,
    roots: Sequence[str],
    overlays: Mapping[str, str],
    module_name: ModuleName,
    part: StepPart | None = None,
    limit: int = SITES,
    of_other_files: bool = True,
) -> tuple[CallSite, ...]:
    """The calls of a target that a tracer may try, the most direct first, the file's own before those of other files.

    `module` is the file's dotted name; `module_name` gives that of any other, and its package. `overlays` are unsaved
    texts by path. Of a target that is the function around a step only `part` runs. At most `limit` are given,
    those of its own file alone unless `of_other_files`.
    """
    own = _Own(target, graph, module, part)
    calls: list[tuple[int, Callable[[], CallSite | None]]] = [(c.rank, partial(own.site, c)) for c in own.calls()]
    if of_other_files and sum(rank == 0 for rank, _ in calls) < limit:
        for there in _elsewhere(own, roots, overlays, module_name):
            calls += [(c.rank, partial(there.site, c)) for c in there.calls()]
    ordered = sorted(calls, key=lambda item: item[0])
    complete = _made(item for item in ordered if item[0] != MADE)
    instances = _made(item for item in ordered if item[0] == MADE)
    return (*islice(complete, limit), *islice(instances, INSTANCES))


def _made(calls: Iterable[tuple[int, Callable[[], CallSite | None]]]) -> Iterator[CallSite]:
    """Yield the sites of calls in their order; of those that only lead to the target, one for each file."""
    seen: set[tuple[str, int]] = set()
    indirect: set[str] = set()
    for rank, make in calls:
        site = make()
        leads = rank > 1 and rank != MADE
        if site is None or (site.file, site.line) in seen or (leads and site.file in indirect):
            continue
        seen.add((site.file, site.line))
        indirect |= {site.file} if leads else set[str]()
        yield site


def _elsewhere(
    own: _Own, roots: Sequence[str], overlays: Mapping[str, str], module_name: ModuleName
) -> Iterator[_There]:
    """Yield the files that use the target's, then those that use what in them leads to the target, and so on."""
    waiting: list[tuple[int, str, _Leading]] = [(0, own.target.file, own.leading)]
    seen = {(own.target.file, 0, own.module)}
    while waiting and len(seen) <= MAX_USERS:
        depth, file, leading = waiting.pop(0)
        for user in users_of(file, roots, leading.known.names, overlays):
            if (user.file, user.part, leading.module) in seen or user.file == own.target.file or len(seen) > MAX_USERS:
                continue
            there = _There(own, leading, user, *module_name(user.file)[:2])
            if there.uses:
                seen.add((user.file, user.part, leading.module))
                yield there
                if depth < MAX_DEPTH and there.leading is not None:
                    waiting.append((depth + 1, user.file, there.leading))


@dataclass(frozen=True)
class _Leading:
    """What in the file `module` leads to the target.

    `imported` is the name under which that file, or one on the way to it, imports the target's ("" for that itself),
    and `taken` what it takes of it.
    """

    module: str
    known: Known
    imported: str = ""
    taken: frozenset[str] = frozenset()


@dataclass
class _Own:
    """The target's own file."""

    target: Target
    graph: SourceGraph
    module: str
    part: StepPart | None = None

    @cached_property
    def known(self) -> Known:
        top = self.target.name.partition(".")[0]
        names = {top, *_users(self.graph.index, [top])}
        definitions = [node for name, node in self.graph.index.definitions.items() if name in names]
        classes = {node.name for node in definitions if isinstance(node, ast.ClassDef)}
        programs = {node.name for node in definitions if isinstance(node, FUNCTIONS) and trains(node)}
        return Known(
            frozenset(names),
            frozenset({top}),
            frozenset(classes),
            frozenset(programs),
            leading=frozenset(names),
            passed=self.part is not None or self.target.name == "main" or _is_command(definitions, top),
            methods=self._methods(definitions),
        )

    def _methods(self, definitions: Iterable[ast.stmt]) -> frozenset[str]:
        """Return the methods of the target's class that call it."""
        top, _, method = self.target.name.partition(".")
        name = {"module": "forward", "method": method}.get(self.target.kind, "")
        classes = (node for node in definitions if isinstance(node, ast.ClassDef) and node.name == top)
        return frozenset(caller for node in classes if name for caller in calling_methods(node, name))

    @property
    def leading(self) -> _Leading:
        return _Leading(self.module, self.known)

    def calls(self) -> list[TargetCall]:
        return calls_in(self.graph, self.known, self.target)

    def site(self, target_call: TargetCall) -> CallSite | None:
        needed = _needed(self.graph, target_call, self.target, self.callee)
        if needed is None:
            return None
        lines = {**self.lines(needed.names), **needed.lines, **(self.part.lines if self.part is not None else {})}
        text = _joined(lines)
        return CallSite(self.target.file, target_call.call.lineno, text, needed.then, functions=needed.functions)

    @property
    def callee(self) -> _Callee | None:
        """Return what of its arguments the target needs; None where it needs all of them."""
        if self.part is None or self.part.function is None:
            return None
        return _Callee(self.part.function, self.part.read, self.target.kind == "method")

    def lines(self, names: Collection[str]) -> Mapping[int, str]:
        """Return the lines of the target, and of what `names` stand for."""
        if self.part is None:
            return self.graph.slice(self.target.name, names).kept
        others = {*names, *self.part.names} - {self.target.name.partition(".")[0]}
        return {**self.graph.slice("", others).kept, **self.part.lines}


class _ImportsOf:
    """What a file imports of a `module` and of the names `leading` in it.

    `names` are what it calls these, by its own name for each; `aliases` its names of the module, which is `imported` as
    that; `in_use` what it wants of it.
    """

    def __init__(self, module: str, leading: Collection[str]) -> None:
        self.names: dict[str, str] = {}
        self.aliases: set[str] = set()
        self.in_use: set[str] = set()
        self.imported = module
        self._module = module
        self._leading = frozenset(leading)

    def add(self, node: ast.Import) -> None:
        """Take note of `import a.b as c`."""
        for alias in node.names:
            if _is_module(alias.name, self._module) and (alias.asname or "." not in alias.name):
                self.aliases.add(alias.asname or alias.name)
                self.imported = alias.name

    def add_from(self, node: ast.ImportFrom, start: str) -> None:
        """Take note of `from a.b import c`, where `start` is `a.b`, absolute."""
        for alias in node.names:
            name = f"{start}.{alias.name}" if start else alias.name
            if _is_module(name, self._module):
                self.aliases.add(alias.asname or alias.name)
                self.imported = name
            elif _is_module(start, self._module) or self._module.startswith(f"{start}."):
                self.imported = start if _is_module(start, self._module) else self.imported
                if alias.name == "*":
                    self.in_use |= self._leading
                    self.names |= {name: name for name in self._leading}
                else:
                    self.in_use.add(alias.name)
                    self.names |= {alias.asname or name: name for name in {alias.name} & self._leading}


@dataclass
class _There:
    """Another file, which runs as `module` of `package` and may import what is `lead` to the target."""

    own: _Own
    lead: _Leading
    user: ProjectFile
    module: str
    package: str

    @property
    def uses(self) -> bool:
        """Return whether it imports something that leads to the target."""
        return bool(self._imports[0].names or self._imports[0].aliases)

    @property
    def leading(self) -> _Leading | None:
        """Return what of this file leads to the target, for files that import it; None where nothing does."""
        callees, imported, imported_names = self._imports
        functions = callees.names
        if not functions:
            return None
        outer = Known(
            functions,
            callees.direct & functions,
            callees.classes,
            callees.programs,
            leading=functions,
            methods=callees.methods,
        )
        return _Leading(self.module, outer, imported, imported_names)

    @cached_property
    def _imports(self) -> tuple[Known, str, frozenset[str]]:
        """Return what leads to the target, the name that the file imports the target's by, and its names in use."""
        lead, imports = self.lead.known, _ImportsOf(self.lead.module, self.lead.known.names)
        for node in self.user.graph.index.import_statements:
            if isinstance(node, ast.Import):
                imports.add(node)
            else:
                imports.add_from(node, self._absolute(node))
        names, aliases, in_use = imports.names, imports.aliases, imports.in_use
        if aliases:
            in_use |= {
                node.attr
                for node in walk(self.user.tree)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases
            }
        helpers = self._helpers(names.keys() | aliases)

        def called(among: frozenset[str]) -> frozenset[str]:
            return frozenset(name for name, original in names.items() if original in among)

        callees = Known(
            frozenset(names.keys() | helpers.keys()),
            called(lead.direct) | lead.direct,
            called(lead.classes) | lead.classes | {*filter(self.user.graph.index.is_class, helpers)},
            called(lead.programs) | _programs(helpers),
            frozenset(aliases),
            lead.names,
            methods=lead.methods,
            helpers=frozenset(helpers),
        )
        if self.lead.imported:
            return callees, self.lead.imported, self.lead.taken
        return callees, imports.imported, frozenset(name for name in in_use if self.own.graph.index.binds(name))

    def _helpers(self, leading: Collection[str]) -> dict[str, ast.stmt]:
        """Functions and classes of the file that use what leads to the target."""
        helpers = _users(self.user.graph.index, leading)
        return {name: node for name, node in self.user.graph.index.definitions.items() if name in helpers}

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.package.split(".") if self.package else []
        return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])

    def calls(self) -> list[TargetCall]:
        return calls_in(self.user.graph, self._imports[0], self.own.target, local_imports=True) if self.uses else []

    def site(self, target_call: TargetCall) -> CallSite | None:
        needed = _needed(self.user.graph, target_call, self.own.target, self.own.callee)
        if needed is None:
            return None
        _, imported, imported_names = self._imports
        lines = {**self.user.graph.slice("", needed.names).kept, **needed.lines}
        return CallSite(
            self.user.file,
            target_call.call.lineno,
            _joined(lines),
            needed.then,
            self.module,
            self.package,
            self.own.graph.slice_of(self.own.lines(imported_names)).text,
            imported,
            needed.functions,
        )


def _programs(definitions: Mapping[str, ast.stmt]) -> set[str]:
    """Return the functions among some definitions that go on to train."""
    return {name for name, node in definitions.items() if isinstance(node, FUNCTIONS) and trains(node)}


def _users(index: ModuleIndex, names: Collection[str]) -> set[str]:
    """Return what of a file uses some of `names`, the containers that hold them, and what uses those."""
    users, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        fresh = {*index.users(name), *index.holders(name)} - users
        users |= fresh
        waiting += fresh
    return users


def _is_command(definitions: Iterable[ast.stmt], name: str) -> bool:
    """Return True if the decorators of a function are what gives it its arguments."""
    return any(decorators_of(node) for node in definitions if getattr(node, "name", "") == name)


def _is_module(name: str, module: str) -> bool:
    """Return whether a dotted name is a module, seen from its directory or from one above."""
    return bool(name) and (f".{name}".endswith(f".{module}") or f".{module}".endswith(f".{name}"))


@dataclass(frozen=True)
class _Needed:
    """The lines of the statements that a call needs, the names of definitions besides, and what to run afterwards.

    `functions` are where those begin that the call stands in, and that call these. What is called there `is_decorated`
    where its decorators give it its arguments.
    """

    lines: Mapping[int, str]
    names: set[str]
    then: str
    functions: tuple[int, ...] = ()
    is_decorated: bool = False


@dataclass(frozen=True)
class _Callee:
    """A function that is called, and those of its parameters that what runs of it reads."""

    function: FunctionNode
    read: frozenset[str]
    is_method: bool = False

    def is_bound_by(self, call: ast.Call) -> bool:
        """Return True if a call gives everything that the function requires."""
        arguments = self.function.args
        positional = [*arguments.posonlyargs, *arguments.args][1 if self.is_method else 0 :]
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return True
        required = positional[len(call.args) : max(len(positional) - len(arguments.defaults), 0)]
        return {a.arg for a in required} <= {k.arg for k in call.keywords}

    def unread(self, call: ast.Call) -> list[ast.expr]:
        """Return the arguments of a call that nothing reads."""
        arguments = self.function.args
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return []
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1 if self.is_method else 0 :]
        rest = [arguments.vararg.arg if arguments.vararg is not None else ""] * max(len(call.args) - len(names), 0)
        every = {a.arg for a in walk(arguments) if isinstance(a, ast.arg)}
        bound = [*zip((*names, *rest), call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
        return [value for name, value in bound if name in every - self.read and not isinstance(value, ast.Constant)]


def _needed(
    graph: SourceGraph,
    target_call: TargetCall,
    target: Target,
    callee: _Callee | None,
    depth: int = MAX_DEPTH,
    read: Collection[str] = (),
) -> _Needed | None:
    """Hold what a call needs; where it stands in a function with parameters, what a call of that needs as well.

    What is called reads names of the module, too: of those, functions on the way may assign some that are `global`.
    """
    body, path = graph.index.body, target_call.path
    unread = _unread(callee, target_call)
    needs = Backwards({*graph.index.imports, *collect_imports(walk(path[0]))})
    idle = {n for argument in unread for n in walk(argument)}
    needs.names |= loads_of(path[-1]) if target_call.whole else _names_in([target_call.call], idle)
    case = test_case(path, graph.index)
    fixtures = case.fixtures if case is not None else frozenset[ast.FunctionDef]()
    needs.names |= case.names if case is not None else set()
    _need_globals(needs, path[0], read)
    needs.choose(target_call.origin)
    needs.follow(body, path)
    outer = _around(graph, path, target, needs, depth) if case is None else None
    if case is None and outer is None:
        return None
    call = None if target_call.whole else target_call.call
    decorated = path[:1] if outer is not None and outer.is_decorated else ()
    needs.names |= _names_in([part for node in decorated for part in decorators_of(node)])
    kept = needs.kept | fixtures
    lines = render(graph.text, body, kept, path, call, fixtures, unread, decorated=decorated, choices=needs.choices)
    functions = tuple(node.lineno for node in path if isinstance(node, FUNCTIONS))
    if outer is not None:
        names = needs.names | outer.names
        return _Needed({**outer.lines, **lines}, names, outer.then, (*functions, *outer.functions))
    assert case is not None
    return _Needed(lines, needs.names | case.names, case.text, functions)


def _need_globals(needs: Backwards, function: ast.stmt, read: Collection[str]) -> None:
    """Have what is `read` of the module be assigned where a function declares it `global`."""
    declared = [node for node in walk(function) if isinstance(node, ast.Global)]
    assigned = {name for node in declared for name in node.names}.intersection(read)
    needs.names |= assigned
    needs.kept.update(declared if assigned else ())


def _unread(callee: _Callee | None, target_call: TargetCall) -> list[ast.expr]:
    """Return the arguments of a call that nothing reads."""
    is_plain = not target_call.whole and not target_call.indirect
    return callee.unread(target_call.call) if callee is not None and is_plain else []


def _names_in(nodes: Iterable[ast.AST], without: Collection[ast.AST] = ()) -> set[str]:
    """Return the names that stand in expressions, `without` some nodes."""
    return {part.id for part in walk(*nodes) if isinstance(part, ast.Name) and part not in without}


def _around(graph: SourceGraph, path: Path, target: Target, needs: Backwards, depth: int) -> _Needed | None:
    """Return what the first call of the function that `path` begins with needs, of which some is needed.

    A call that leaves out what the function requires is one of what the decorators make of it: they are kept. So are
    those of a function that an object registers, `@app.command()`, where that is called.
    """
    function = path[0]
    if not isinstance(function, FUNCTIONS) or depth == 0:
        return None
    registering = {root.id for node in function.decorator_list if isinstance(root := root_of(node), ast.Name)}
    own = frozenset({function.name})
    for name in (own, frozenset(registering) - own):
        leading = Known(name, name, frozenset(), passed=name is own)
        calls = calls_in(graph, leading, replace(target, name=function.name, kind="function")) if name else []
        callee = _Callee(function, frozenset(needs.read))
        for call in calls:
            if call.path[0] is function:
                continue
            is_plain = name is own and not call.indirect and callee.is_bound_by(call.call)
            needed = _needed(graph, call, target, callee if is_plain else None, depth - 1, loads_of(function))
            if needed is not None:
                return replace(needed, is_decorated=not is_plain)
    return None


def _joined(lines: Mapping[int, str]) -> str:
    return "\n".join(lines.get(number, "") for number in range(1, max(lines, default=0) + 1))
