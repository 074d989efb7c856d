"""The part of a file that a target needs, with every position kept: what is not reached is blanked."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from fx_lsp.model import Failure
from fx_lsp.syntax import is_main_guard
from fx_lsp.tracing.slicing.entry_point import Entry
from fx_lsp.tracing.source.operators import libraries_of, registered, used
from fx_lsp.tracing.source.parsing import end_of, parse, split_lines, start_of, walk
from fx_lsp.tracing.source.scopes import (
    alterations_of,
    binds_of,
    calls_of,
    changes_of,
    loads_of,
    method_calls_of,
)
from fx_lsp.tracing.source.tensor_code import collect_imports

CONVENTIONS = ("get_inputs", "get_init_inputs", "example_inputs")
"""Names that a file may bind to say what its targets are called with."""


@dataclass(frozen=True)
class Slice:
    """A hash of a slice's significant lines, and their 1-based numbers; `kept` are all lines in it, out of `height`."""

    fingerprint: str
    lines: tuple[int, ...]
    kept: Mapping[int, str]
    height: int

    @cached_property
    def text(self) -> str:
        """Return the slice at the positions of the text that it is part of."""
        return "\n".join(self.kept.get(n, "") for n in range(1, self.height + 1))


def slice_source(text: str, name: str) -> str:
    """`text` with as many lines, of which only the statements remain that the target `name` reaches.

    A text that does not parse comes back as it is.
    """
    tree = parse("<slice>", text)
    return text if isinstance(tree, Failure) else SourceGraph(text, tree).slice(name).text


def fingerprint(sliced: str) -> str:
    """Return a hash of a slice that ignores blank lines and comment-only lines, except inside string literals."""
    lines = split_lines(sliced)
    return _digest(lines[number - 1] for number in significant_lines(sliced))


def significant_lines(sliced: str) -> tuple[int, ...]:
    """1-based numbers of the lines that `fingerprint` hashes."""
    tree = parse("<slice>", sliced)
    literal = set[int]() if isinstance(tree, Failure) else _literal_lines(tree)
    return tuple(n for n, line in enumerate(split_lines(sliced), 1) if n in literal or _is_code(line))


class SourceGraph:
    """What reads what among the top-level statements of one text. Built once, sliced for every target."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        self._text = text
        self._lines = [line.encode("utf-8", "surrogatepass") for line in split_lines(text.removeprefix("\ufeff"))]
        self._statements = tree.body
        self._loads: dict[int, frozenset[str]] = {}
        self.tree = tree

    def slice(self, name: str, also: Collection[str] = ()) -> Slice:
        """The slice for the target `name` (`f`, `Block` or `Block.extra`), and what the names `also` stand for."""
        kept, entry = self._reach_all(name.partition(".")[0], also)
        return self.slice_of({**self._render(sorted(kept)), **entry})

    def slice_of(self, lines: Mapping[int, str]) -> Slice:
        """Return the slice that consists of some lines, each with its number."""
        numbers = tuple(n for n, line in sorted(lines.items()) if n in self._literals or _is_code(line))
        return Slice(_digest(lines[n] for n in numbers), numbers, lines, len(self._lines))

    def binds(self, name: str) -> bool:
        """Return whether a top-level statement binds `name`."""
        return name in self._binders

    def is_class(self, name: str) -> bool:
        """Return whether a top-level statement defines a class `name`."""
        binders = self._binders.get(name, [])
        return any(isinstance(n, ast.ClassDef) and n.name == name for i in binders for n in walk(self._statements[i]))

    def users(self, name: str) -> list[str]:
        """Return the functions and classes at the top level that mention `name`."""
        definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return [
            node.name
            for number, node in enumerate(self._statements)
            if isinstance(node, definitions) and name in self.loads(number)
        ]

    def holders(self, name: str) -> set[str]:
        """The containers at the top level that hold `name`: `NETS = {"small": Small}`, `@register class Small`."""
        held: set[str] = set()
        for number, node in enumerate(self._statements):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and name in self.loads(number):
                held |= binds_of(node) if isinstance(node.value, (ast.List, ast.Dict, ast.Tuple)) else changes_of(node)
        involved = {i for i, node in enumerate(self._statements) if name in self.loads(i) or name in binds_of(node)}
        return held.union(name for name, numbers in self._registrations.items() if involved.intersection(numbers))

    def reached(self, name: str) -> set[str]:
        """Return the names that the statements in the slice of `name` bind."""
        return {bound for number in self._reach(name, ()) for bound in binds_of(self._statements[number])}

    def import_line(self, package: str) -> int | None:
        """Return the first line on which a top-level statement imports `package`."""
        for node in self._statements:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            if any(name.partition(".")[0] == package for name in names):
                return node.lineno
        return None

    def loads(self, number: int) -> frozenset[str]:
        """Module-level names that a statement of the module (by its index) may read."""
        if number not in self._loads:
            statement = self._statements[number]
            operators = (registered(statement, self._libraries) | used(statement)) & self._operators.keys()
            self._loads[number] = loads_of(statement) | operators
        return self._loads[number]

    @cached_property
    def _literals(self) -> set[int]:
        return _literal_lines(self.tree)

    @cached_property
    def _always(self) -> list[int]:
        return [i for i, node in enumerate(self._statements) if _always_runs(node)]

    @cached_property
    def _binders(self) -> Mapping[str, list[int]]:
        return self._index(binds_of)

    @cached_property
    def _libraries(self) -> dict[str, str]:
        return libraries_of(self._statements)

    @cached_property
    def _operators(self) -> Mapping[str, list[int]]:
        """Return the statements that register operators, by their namespace (`mine::`)."""
        return self._index(lambda statement: registered(statement, self._libraries))

    @cached_property
    def _changers(self) -> Mapping[str, list[int]]:
        return self._index(changes_of)

    @cached_property
    def _callers(self) -> Mapping[str, list[int]]:
        return self._index(method_calls_of)

    @cached_property
    def _asked(self) -> Mapping[str, list[int]]:
        """The statements that call something of a module for what it does: `flags.DEFINE_integer("width", 64, "")`."""
        imported = collect_imports(self._statements).keys()
        return self._index(lambda node: frozenset({_called_of(node)} & imported))

    @cached_property
    def _alterations(self) -> Mapping[int, frozenset[str]]:
        """Return what the functions of the module alter when they are called, by the index of each."""
        altered = {number: alterations_of(node) for number, node in enumerate(self._statements)}
        return {number: names for number, names in altered.items() if names}

    @cached_property
    def _registrations(self) -> Mapping[str, list[int]]:
        """Return the statements that call a function which alters a name: `register("gelu", nn.GELU)`, `@register`."""
        altered: dict[str, set[str]] = {}
        for number, names in self._alterations.items():
            for function in binds_of(self._statements[number]):
                altered.setdefault(function, set()).update(names)
        return self._index(lambda node: frozenset(n for called in calls_of(node) for n in altered.get(called, ())))

    def _index(self, names: Callable[[ast.stmt], frozenset[str]]) -> Mapping[str, list[int]]:
        index: dict[str, list[int]] = {}
        for number, statement in enumerate(self._statements):
            if not _never_runs(statement):
                for name in names(statement):
                    index.setdefault(name, []).append(number)
        return index

    @cached_property
    def _entry(self) -> Entry:
        return Entry(self._text, self._statements, collect_imports(self._statements).keys())

    def _reach_all(self, name: str, also: Collection[str]) -> tuple[set[int], Mapping[int, str]]:
        """Return the statements in the slice, and the lines of what the program's entry binds for them."""
        names = set(also)
        while True:
            kept = self._reach(name, names)
            read = {loaded for number in kept for loaded in self.loads(number)}
            defined = {name for number in kept for name in binds_of(self._statements[number])}
            outside = (read | names) - self._binders.keys() - self._operators.keys()
            lines, more = self._entry.slice(outside, defined)
            if more <= names:
                return kept, lines
            names |= more

    def _reach(self, name: str, also: Collection[str]) -> set[int]:
        kept = set(self._always)
        needed = {name, *also, *(c for c in CONVENTIONS if c in self._binders), *self._lent_to(name)}
        names = list(needed)
        waiting = list(kept)
        filled: set[str] = set()
        while names or waiting:
            while names:
                waiting.extend(self._statements_about(names.pop()))
            while waiting:
                number = waiting.pop()
                kept.add(number)
                fresh = self.loads(number) - needed
                needed |= fresh
                names.extend(fresh)
                read = self.loads(number) - self._alterations.get(number, frozenset()) - filled
                filled |= read
                waiting.extend(n for name in read for n in self._registrations.get(name, ()) if n not in kept)
        return kept

    @cached_property
    def _annotations(self) -> Mapping[str, frozenset[str]]:
        """Return, for each parameter name, the names in its first annotation anywhere in the file."""
        names: dict[str, frozenset[str]] = {}
        for node in walk(self.tree):
            if isinstance(node, ast.arg) and node.annotation is not None and node.arg not in names:
                names[node.arg] = frozenset(n.id for n in walk(node.annotation) if isinstance(n, ast.Name))
        return names

    def _lent_to(self, name: str) -> set[str]:
        """Return what annotates parameters of the same names as those that the definition `name` does not annotate."""
        nodes = [self._statements[i] for i in self._binders.get(name, [])]
        bare = {n.arg for n in walk(*nodes) if isinstance(n, ast.arg) and n.annotation is None}
        return {lent for parameter in bare for lent in self._annotations.get(parameter, frozenset())}

    def _statements_about(self, name: str) -> Iterable[int]:
        binders = self._binders.get(name, [])
        yield from binders
        yield from self._operators.get(name, [])
        changers = self._changers.get(name, [])
        defined_here = any(not isinstance(self._statements[i], (ast.Import, ast.ImportFrom)) for i in binders)
        for number in changers:
            if defined_here or not isinstance(self._statements[number], (ast.FunctionDef, ast.ClassDef)):
                yield number
        if any(_makes_object(self._statements[i]) for i in binders):
            yield from self._callers.get(name, [])
        for part in (_taken_of(self._statements[i]) for i in binders):
            yield from self._asked.get(part, [])

    def _render(self, kept: list[int]) -> dict[int, str]:
        """Return the kept lines by number. A dropped statement before a kept one on its line is replaced by `0;`."""
        lines: dict[int, bytes] = {}
        previous: tuple[int, tuple[int, int]] | None = None
        for number in kept:
            (line, col), (end_line, end_col) = start_of(self._statements[number]), end_of(self._statements[number])
            if previous and previous[1][0] == line and line in lines:
                prefix = lines[line] + b";"
            elif previous and previous[0] == number - 1 and previous[1][0] + 1 == line and col:
                before = previous[1][0]
                lines[before] = self._lines[before - 1]
                prefix = self._lines[line - 1][:col]
            else:
                prefix = b"0;" if col else b""
            for n in range(line, end_line + 1):
                content = self._lines[n - 1]
                if n == end_line:
                    content = content[:end_col]
                if n == line:
                    content = prefix.ljust(col) + content[col:]
                lines[n] = content
            previous = number, (end_line, end_col)
        return {n: content.decode("utf-8", "surrogatepass") for n, content in lines.items()}


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()


def _is_code(line: str) -> bool:
    stripped = line.lstrip()
    return bool(stripped) and not stripped.startswith("#")


def _literal_lines(tree: ast.Module) -> set[int]:
    """Lines that a string literal begun on an earlier line reaches."""
    lines: set[int] = set()
    for node in walk(tree):
        if isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno and node.end_lineno > node.lineno:
            lines.update(range(node.lineno + 1, node.end_lineno + 1))
    return lines


def _always_runs(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__" or node.names[0].name == "*"
    called = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
    owner = called.value if isinstance(called, ast.Attribute) and called.attr.startswith("set_") else None
    if isinstance(owner, ast.Name) and owner.id == "torch":
        return True
    return isinstance(node, (ast.Expr, ast.Assign, ast.AugAssign)) and any(
        isinstance(n, ast.Attribute) and n.attr == "path" and isinstance(n.value, ast.Name) and n.value.id == "sys"
        for n in walk(node)
    )


def _taken_of(node: ast.stmt) -> str:
    """`flags` for `FLAGS = flags.FLAGS`."""
    value = node.value if isinstance(node, ast.Assign) else None
    owner = value.value if isinstance(value, ast.Attribute) else None
    return owner.id if isinstance(owner, ast.Name) else ""


def _called_of(node: ast.stmt) -> str:
    """`flags` for `flags.DEFINE_integer("width", 64, "")`: a call, for what it does, that begins with a name."""
    call = node.value if isinstance(node, ast.Expr) else None
    owner = call.func.value if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else None
    is_named = isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant)
    return owner.id if is_named and isinstance(owner, ast.Name) and owner.id != "torch" else ""


def _never_runs(node: ast.stmt) -> bool:
    if isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        return any(
            isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr in ("backward", "step")
            for n in walk(node)
        )
    return is_main_guard(node)


def _makes_object(node: ast.stmt) -> bool:
    """Return True if a statement binds what may be altered later: a container, or what a call or a decorator gives."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return bool(node.decorator_list)
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    return isinstance(value, (ast.Call, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp))
