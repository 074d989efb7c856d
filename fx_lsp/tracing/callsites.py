"""Where a file and its tests call a target in straight-line code, and what each such call needs. Reads syntax only."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice

from fx_lsp.model import CallSite, Target
from fx_lsp.tracing.backwards import Backwards, render
from fx_lsp.tracing.calls import FUNCTIONS, Found, Known, calls_in, trains
from fx_lsp.tracing.evidence import collect_imports
from fx_lsp.tracing.names import loads_of
from fx_lsp.tracing.parsing import walk
from fx_lsp.tracing.pytesting import test_case
from fx_lsp.tracing.slicing import SourceGraph
from fx_lsp.tracing.testfiles import TestFile, tests_of

SITES = 3
"""How many call sites a request names at most."""
ModuleName = Callable[[str], tuple[str, str, str]]


def call_sites(
    target: Target,
    graph: SourceGraph,
    text: str,
    module: str,
    roots: Sequence[str],
    overlays: Mapping[str, str],
    module_name: ModuleName,
) -> tuple[CallSite, ...]:
    """The calls of a target that a tracer may try, the most direct first, the file's own before those of its tests.

    `module` is the file's dotted name; `module_name` gives that of any other, and its package. `overlays` are unsaved
    texts by path.
    """
    own = _Own(target, graph, text, module)
    found: list[tuple[int, Callable[[], CallSite | None]]] = [(f.rank, partial(own.site, f)) for f in own.calls()]
    if sum(rank == 0 for rank, _ in found) < SITES:
        for test in tests_of(target.file, roots, target.name.partition(".")[0], overlays):
            there = _There(own, test, *module_name(test.file)[:2])
            found += [(f.rank, partial(there.site, f)) for f in there.calls()]
    sites = (make() for _, make in sorted(found, key=lambda item: item[0]))
    return tuple(islice((site for site in sites if site is not None), SITES))


@dataclass
class _Own:
    """The target's own file."""

    target: Target
    graph: SourceGraph
    text: str
    module: str

    @cached_property
    def known(self) -> Known:
        top = self.target.name.partition(".")[0]
        names, waiting = {top}, [top]
        while waiting:
            fresh = set(self.graph.users(waiting.pop())) - names
            names |= fresh
            waiting += fresh
        definitions = [node for node in self.graph.tree.body if getattr(node, "name", None) in names]
        classes = {node.name for node in definitions if isinstance(node, ast.ClassDef)}
        programs = {node.name for node in definitions if isinstance(node, FUNCTIONS) and trains(node)}
        return Known(
            frozenset(names), frozenset({top}), frozenset(classes), frozenset(programs), leading=frozenset(names)
        )

    def calls(self) -> list[Found]:
        return calls_in(self.graph, self.known, self.target)

    def site(self, found: Found) -> CallSite | None:
        needed = _needed(self.graph, self.text, found)
        if needed is None:
            return None
        lines = {**self.graph.slice(self.target.name, needed.names).kept, **needed.lines}
        return CallSite(self.target.file, found.call.lineno, _joined(lines, self.text), needed.then)


@dataclass
class _There:
    """A test file, which runs as `module` of `package`."""

    own: _Own
    test: TestFile
    module: str
    package: str

    @cached_property
    def _imports(self) -> tuple[Known, str, frozenset[str]]:
        """What leads to the target, the name under which the file imports the target's, and what it imports of it."""
        names: dict[str, str] = {}
        aliases: set[str] = set()
        taken: set[str] = set()
        own, imported = self.own.known, self.own.module
        for node in walk(self.test.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    if self._is_own(alias.name) and (alias.asname or "." not in alias.name):
                        aliases.add(alias.asname or alias.name)
                        imported = alias.name
            elif isinstance(node, ast.ImportFrom):
                start = self._absolute(node)
                for alias in node.names:
                    if self._is_own(f"{start}.{alias.name}" if start else alias.name):
                        aliases.add(alias.asname or alias.name)
                        imported = f"{start}.{alias.name}" if start else alias.name
                    elif self._is_own(start) or self.own.module.startswith(f"{start}."):
                        imported = start if self._is_own(start) else imported
                        taken |= {alias.name}
                        if alias.name in own.names:
                            names[alias.asname or alias.name] = alias.name
        if aliases:
            taken |= {
                node.attr
                for node in walk(self.test.tree)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases
            }
        helpers = self._helpers(names.keys() | aliases)

        def called(among: frozenset[str]) -> frozenset[str]:
            return frozenset(name for name, original in names.items() if original in among)

        known = Known(
            frozenset(names.keys() | helpers.keys()),
            called(own.direct) | own.direct,
            called(own.classes) | own.classes,
            called(own.programs) | {name for name, node in helpers.items() if trains(node)},
            frozenset(aliases),
            own.names,
        )
        return known, imported, frozenset(name for name in taken if self.own.graph.binds(name))

    def _helpers(self, leading: Collection[str]) -> dict[str, ast.stmt]:
        """Functions and classes of the test file that use what leads to the target."""
        graph, found, waiting = self.test.graph, set[str](), list(leading)
        while waiting:
            fresh = set(graph.users(waiting.pop())) - found
            found |= fresh
            waiting += fresh
        return {node.name: node for node in self.test.tree.body if isinstance(node, FUNCTIONS) and node.name in found}

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.package.split(".") if self.package else []
        return ".".join([*parts[: len(parts) - node.level + 1], *([node.module] if node.module else [])])

    def _is_own(self, name: str) -> bool:
        """Whether the dotted name is the target's file, seen from this directory or from one above."""
        own = self.own.module
        return bool(name) and (f".{name}".endswith(f".{own}") or f".{own}".endswith(f".{name}"))

    def calls(self) -> list[Found]:
        known = self._imports[0]
        return (
            calls_in(self.test.graph, known, self.own.target, local_imports=True)
            if known.names or known.aliases
            else []
        )

    def site(self, found: Found) -> CallSite | None:
        needed = _needed(self.test.graph, self.test.text, found)
        if needed is None:
            return None
        _, imported, taken = self._imports
        lines = {**self.test.graph.slice("", needed.names).kept, **needed.lines}
        return CallSite(
            self.test.file,
            found.call.lineno,
            _joined(lines, self.test.text),
            needed.then,
            self.module,
            self.package,
            self.own.graph.slice(self.own.target.name, taken).text,
            imported,
        )


@dataclass(frozen=True)
class _Needed:
    """The lines of the statements that a call needs, the names of definitions besides, and what to run afterwards."""

    lines: Mapping[int, str]
    names: set[str]
    then: str


def _needed(graph: SourceGraph, text: str, found: Found) -> _Needed | None:
    body, path = graph.tree.body, found.path
    case = test_case(path, graph.tree)
    if case is None:
        return None
    needs = Backwards(collect_imports([*body, *walk(path[0])]).keys())
    needs.names |= loads_of(path[-1]) if found.whole else {n.id for n in walk(found.call) if isinstance(n, ast.Name)}
    needs.names |= case.names
    needs.follow(body, path)
    kept = needs.kept | case.fixtures
    lines = render(text, body, kept, path, None if found.whole else found.call, case.fixtures)
    return _Needed(lines, needs.names | case.names, case.text)


def _joined(lines: Mapping[int, str], text: str) -> str:
    return "\n".join(lines.get(number, "") for number in range(1, max(lines, default=0) + 1))
