"""Find the call sites of a target in its project: its own file, tests, and files that use either, with the code that
each call needs.

Reads syntax only.
"""

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
from fx_lsp.tracing.slicing.backward_slice import Backwards, KeptCode, Path, decorators_of, render, root_of
from fx_lsp.tracing.slicing.module_slice import SourceGraph
from fx_lsp.tracing.slicing.step_slice import StepPart
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import walk
from fx_lsp.tracing.source.scopes import loads_of
from fx_lsp.tracing.source.tensor_code import collect_imports

SITES = 4
"""The most call sites in a request."""
INSTANCES = 2
"""The most additional places in a request that only create an instance of the target's class."""
MAX_DEPTH = 3
"""The most files between the target's and one with an indirect call of the target."""
MAX_USERS = 24
"""The most files that are searched because they use the target, or code that leads to it."""
ModuleName = Callable[[str], tuple[str, str, str]]


@dataclass(frozen=True)
class SearchedCode:
    """Hold the code to search for calls of a target: its own file and, with `of_other_files`, others below `roots`.

    `module` is the dotted name of its own file; `module_name` returns that of any other, and its package. `overlays`
    are unsaved texts by path.
    """

    graph: SourceGraph
    module: str
    roots: Sequence[str]
    overlays: Mapping[str, str]
    module_name: ModuleName
    of_other_files: bool = True


def call_sites(
    searched: SearchedCode, target: Target, part: StepPart | None = None, limit: int = SITES
) -> tuple[CallSite, ...]:
    """Return at most `limit` calls of a target that a tracer may try, the most direct first, the file's own before
    those of other files.

    If the target is the function around a step, only `part` of it runs.
    """
    own = _Own(target, searched.graph, searched.module, part)
    calls: list[tuple[int, Callable[[], CallSite | None]]] = [(c.rank, partial(own.site, c)) for c in own.calls()]
    if searched.of_other_files and sum(rank == 0 for rank, _ in calls) < limit:
        for there in _elsewhere(own, searched):
            calls += [(c.rank, partial(there.site, c)) for c in there.calls()]
    ordered = sorted(calls, key=lambda item: item[0])
    complete = _made(item for item in ordered if item[0] != MADE)
    instances = _made(item for item in ordered if item[0] == MADE)
    return (*islice(complete, limit), *islice(instances, INSTANCES))


def _made(calls: Iterable[tuple[int, Callable[[], CallSite | None]]]) -> Iterator[CallSite]:
    """Yield the sites of calls in order; of indirect calls, one for each file."""
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


def _elsewhere(own: _Own, searched: SearchedCode) -> Iterator[_There]:
    """Yield the files that use the target's file, then those that use definitions in them that lead to the target, and
    so on.
    """
    waiting: list[tuple[int, str, _Leading]] = [(0, own.target.file, own.leading)]
    seen = {(own.target.file, 0, own.module)}
    while waiting and len(seen) <= MAX_USERS:
        depth, file, leading = waiting.pop(0)
        for user in users_of(file, searched.roots, leading.known.names, searched.overlays):
            if (user.file, user.part, leading.module) in seen or user.file == own.target.file or len(seen) > MAX_USERS:
                continue
            there = _There(own, leading, user, *searched.module_name(user.file)[:2])
            if there.uses:
                seen.add((user.file, user.part, leading.module))
                yield there
                if depth < MAX_DEPTH and there.leading is not None:
                    waiting.append((depth + 1, user.file, there.leading))


@dataclass(frozen=True)
class _Leading:
    """Hold the names in the file `module` that lead to the target.

    `imported` is the name under which that file, or one between them, imports the target's ("" for the target's file
    itself), and `taken` are the names that it uses of it.
    """

    module: str
    known: Known
    imported: str = ""
    taken: frozenset[str] = frozenset()


@dataclass
class _Own:
    """Find calls in the target's own file."""

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
        """Return the methods of the target's class that call the target."""
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
        needed = _CallSlicer(self.graph, self.target).needed(target_call, self.callee)
        if needed is None:
            return None
        lines = {**self.lines(needed.names), **needed.lines, **(self.part.lines if self.part is not None else {})}
        text = _joined(lines)
        return CallSite(self.target.file, target_call.call.lineno, text, needed.then, functions=needed.functions)

    @property
    def callee(self) -> _Callee | None:
        """Return the arguments that the target needs; None if it needs all of them."""
        if self.part is None or self.part.function is None:
            return None
        return _Callee(self.part.function, self.part.read, self.target.kind == "method")

    def lines(self, names: Collection[str]) -> Mapping[int, str]:
        """Return the lines of the target, and of the definitions of `names`."""
        if self.part is None:
            return self.graph.slice(self.target.name, names).kept
        others = {*names, *self.part.names} - {self.target.name.partition(".")[0]}
        return {**self.graph.slice("", others).kept, **self.part.lines}


class _ImportsOf:
    """Collect the imports of a `module`, and of the names `leading` in it, in a file.

    `names` are the file's names for them, mapped to the original ones; `aliases` are its names for the module, which it
    imports as `imported`; `in_use` are the names that it uses of the module.
    """

    def __init__(self, module: str, leading: Collection[str]) -> None:
        self.names: dict[str, str] = {}
        self.aliases: set[str] = set()
        self.in_use: set[str] = set()
        self.imported = module
        self._module = module
        self._leading = frozenset(leading)

    def add(self, node: ast.Import) -> None:
        """Record `import a.b as c`."""
        for alias in node.names:
            if _is_module(alias.name, self._module) and (alias.asname or "." not in alias.name):
                self.aliases.add(alias.asname or alias.name)
                self.imported = alias.name

    def add_from(self, node: ast.ImportFrom, start: str) -> None:
        """Record `from a.b import c`, where `start` is `a.b`, absolute."""
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
    """Describe another file, which runs as `module` of `package` and may import names of `lead`."""

    own: _Own
    lead: _Leading
    user: ProjectFile
    module: str
    package: str

    @property
    def uses(self) -> bool:
        """Return True if the file imports a name that leads to the target."""
        return bool(self._imports[0].names or self._imports[0].aliases)

    @property
    def leading(self) -> _Leading | None:
        """Return the names of this file that lead to the target, for files that import it; None without any."""
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
        """Return the names that lead to the target, the file's name for the target's module, and the used
        names of it.
        """
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
        """Return the functions and classes of the file that use names that lead to the target."""
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
        needed = _CallSlicer(self.user.graph, self.own.target).needed(target_call, self.own.callee)
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
    """Return the names of the functions among some definitions that train."""
    return {name for name, node in definitions.items() if isinstance(node, FUNCTIONS) and trains(node)}


def _users(index: ModuleIndex, names: Collection[str]) -> set[str]:
    """Return the definitions of a file that use some of `names` or their containers, directly or indirectly."""
    users, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        fresh = {*index.users(name), *index.holders(name)} - users
        users |= fresh
        waiting += fresh
    return users


def _is_command(definitions: Iterable[ast.stmt], name: str) -> bool:
    """Return True if the decorators of a function supply its arguments."""
    return any(decorators_of(node) for node in definitions if getattr(node, "name", "") == name)


def _is_module(name: str, module: str) -> bool:
    """Return True if a dotted name is a module, relative to its directory or to one above."""
    return bool(name) and (f".{name}".endswith(f".{module}") or f".{module}".endswith(f".{name}"))


@dataclass(frozen=True)
class _Needed:
    """Hold the lines of the statements that a call needs, further names of definitions, and the code to run afterwards.

    `functions` are the first lines of the functions that contain the call, and of their callers. `is_decorated` is True
    if the decorators of the called function supply its arguments.
    """

    lines: Mapping[int, str]
    names: set[str]
    then: str
    functions: tuple[int, ...] = ()
    is_decorated: bool = False


@dataclass(frozen=True)
class _Callee:
    """Hold a called function, and its parameters that the executed part reads."""

    function: FunctionNode
    read: frozenset[str]
    is_method: bool = False

    def is_bound_by(self, call: ast.Call) -> bool:
        """Return True if a call passes all required arguments."""
        arguments = self.function.args
        positional = [*arguments.posonlyargs, *arguments.args][1 if self.is_method else 0 :]
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return True
        required = positional[len(call.args) : max(len(positional) - len(arguments.defaults), 0)]
        return {a.arg for a in required} <= {k.arg for k in call.keywords}

    def unread(self, call: ast.Call) -> list[ast.expr]:
        """Return the arguments of a call that the function does not read."""
        arguments = self.function.args
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            return []
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)][1 if self.is_method else 0 :]
        rest = [arguments.vararg.arg if arguments.vararg is not None else ""] * max(len(call.args) - len(names), 0)
        every = {a.arg for a in walk(arguments) if isinstance(a, ast.arg)}
        bound = [*zip((*names, *rest), call.args, strict=False), *((k.arg or "", k.value) for k in call.keywords)]
        return [value for name, value in bound if name in every - self.read and not isinstance(value, ast.Constant)]


@dataclass(frozen=True)
class _CallSlicer:
    """Find the code in one file that calls of a target need."""

    graph: SourceGraph
    target: Target

    def needed(
        self, target_call: TargetCall, callee: _Callee | None, depth: int = MAX_DEPTH, read: Collection[str] = ()
    ) -> _Needed | None:
        """Return the code that a call needs; inside a function with parameters, also that of a call of the function.

        The called code also reads names of the module; functions between them may assign some that are `global`.
        """
        body, path = self.graph.index.body, target_call.path
        unread = _unread(callee, target_call)
        needs = Backwards({*self.graph.index.imports, *collect_imports(walk(path[0]))})
        idle = {n for argument in unread for n in walk(argument)}
        needs.names |= loads_of(path[-1]) if target_call.whole else _names_in([target_call.call], idle)
        case = test_case(path, self.graph.index)
        fixtures = case.fixtures if case is not None else frozenset[ast.FunctionDef]()
        needs.names |= case.names if case is not None else set()
        _need_globals(needs, path[0], read)
        needs.choose(target_call.origin)
        needs.follow(body, path)
        outer = self._around(path, needs, depth) if case is None else None
        if case is None and outer is None:
            return None
        call = None if target_call.whole else target_call.call
        decorated = path[:1] if outer is not None and outer.is_decorated else ()
        needs.names |= _names_in([part for node in decorated for part in decorators_of(node)])
        kept = needs.kept | fixtures
        lines = render(
            self.graph.text,
            body,
            KeptCode(kept, path, call, fixtures, unread, decorated=decorated, choices=needs.choices),
        )
        functions = tuple(node.lineno for node in path if isinstance(node, FUNCTIONS))
        if outer is not None:
            names = needs.names | outer.names
            return _Needed({**outer.lines, **lines}, names, outer.then, (*functions, *outer.functions))
        assert case is not None
        return _Needed(lines, needs.names | case.names, case.text, functions)

    def _around(self, path: Path, needs: Backwards, depth: int) -> _Needed | None:
        """Return the code needed by the first call of the function at the start of `path`, part of which is needed.

        A call that omits required arguments calls the decorated function, so its decorators are kept. So are those of a
        function that an object registers, `@app.command()`, if that object is called.
        """
        function = path[0]
        if not isinstance(function, FUNCTIONS) or depth == 0:
            return None
        registering = {root.id for node in function.decorator_list if isinstance(root := root_of(node), ast.Name)}
        own = frozenset({function.name})
        called = replace(self.target, name=function.name, kind="function")
        for name in (own, frozenset(registering) - own):
            leading = Known(name, name, frozenset(), passed=name is own)
            calls = calls_in(self.graph, leading, called) if name else []
            callee = _Callee(function, frozenset(needs.read))
            for call in calls:
                if call.path[0] is function:
                    continue
                is_plain = name is own and not call.indirect and callee.is_bound_by(call.call)
                needed = self.needed(call, callee if is_plain else None, depth - 1, loads_of(function))
                if needed is not None:
                    return replace(needed, is_decorated=not is_plain)
        return None


def _need_globals(needs: Backwards, function: ast.stmt, read: Collection[str]) -> None:
    """Add the assignments of the names in `read` that a function declares `global`."""
    declared = [node for node in walk(function) if isinstance(node, ast.Global)]
    assigned = {name for node in declared for name in node.names}.intersection(read)
    needs.names |= assigned
    needs.kept.update(declared if assigned else ())


def _unread(callee: _Callee | None, target_call: TargetCall) -> list[ast.expr]:
    """Return the arguments of a call that the called function does not read."""
    is_plain = not target_call.whole and not target_call.indirect
    return callee.unread(target_call.call) if callee is not None and is_plain else []


def _names_in(nodes: Iterable[ast.AST], without: Collection[ast.AST] = ()) -> set[str]:
    """Return the names in expressions, `without` some nodes."""
    return {part.id for part in walk(*nodes) if isinstance(part, ast.Name) and part not in without}


def _joined(lines: Mapping[int, str]) -> str:
    return "\n".join(lines.get(number, "") for number in range(1, max(lines, default=0) + 1))
