"""Slice a file to the part that a target needs: unreached lines are blanked, and every position is kept."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from fx_lsp.model import Failure
from fx_lsp.tracing.source.index import ModuleIndex
from fx_lsp.tracing.source.parsing import end_of, parse, python_of, split_lines, start_of, walk
from fx_lsp.tracing.source.scopes import binds_of

CONVENTIONS = ("get_inputs", "get_init_inputs", "example_inputs")
"""Names that a file may bind to provide inputs of its targets."""


@dataclass(frozen=True)
class Slice:
    """Hold a hash of a slice's significant lines, and their 1-based numbers; `kept` are all lines in it, out of
    `height`.
    """

    fingerprint: str
    lines: tuple[int, ...]
    kept: Mapping[int, str]
    height: int

    @cached_property
    def text(self) -> str:
        """Return the slice at the positions of the whole text."""
        return "\n".join(self.kept.get(n, "") for n in range(1, self.height + 1))


def slice_source(text: str, name: str) -> str:
    """Return `text` with the same number of lines, but only the statements that the target `name` reaches.

    A text that does not parse is returned unchanged.
    """
    tree = parse("<slice>", text)
    return text if isinstance(tree, Failure) else SourceGraph(text, tree).slice(name).text


def fingerprint(sliced: str) -> str:
    """Return a hash of a slice that ignores blank lines and comment-only lines, except inside string literals."""
    lines = split_lines(sliced)
    return _digest(lines[number - 1] for number in significant_lines(sliced))


def significant_lines(sliced: str) -> tuple[int, ...]:
    """Return the 1-based numbers of the lines that `fingerprint` hashes."""
    tree = parse("<slice>", sliced)
    literal = set[int]() if isinstance(tree, Failure) else _literal_lines(tree)
    return tuple(n for n, line in enumerate(split_lines(sliced), 1) if n in literal or _is_code(line))


class SourceGraph:
    """Index one text once, and slice it for every target."""

    def __init__(self, text: str, tree: ast.Module) -> None:
        self.text = python_of(text)
        self._lines = [line.encode("utf-8", "surrogatepass") for line in split_lines(self.text.removeprefix("\ufeff"))]
        self._statements = tree.body
        self.index = ModuleIndex(tree)

    def slice(self, name: str, also: Collection[str] = ()) -> Slice:
        """Return the slice for the target `name` (`f`, `Block` or `Block.extra`), and for the definitions of the names
        `also`.
        """
        return self.slice_of(self._render(sorted(self._reach(name.partition(".")[0], also))))

    def slice_of(self, lines: Mapping[int, str]) -> Slice:
        """Return the slice of some lines, each with its number."""
        numbers = tuple(n for n, line in sorted(lines.items()) if n in self._literals or _is_code(line))
        return Slice(_digest(lines[n] for n in numbers), numbers, lines, len(self._lines))

    def reached(self, name: str) -> set[str]:
        """Return the names that the statements in the slice of `name` bind."""
        return {bound for number in self._reach(name, ()) for bound in binds_of(self._statements[number])}

    @cached_property
    def _literals(self) -> set[int]:
        return _literal_lines(self.index.tree)

    @cached_property
    def _always(self) -> list[int]:
        return [i for i, node in enumerate(self._statements) if _always_runs(node)]

    def _reach(self, name: str, also: Collection[str]) -> set[int]:
        kept = set(self._always)
        needed = {name, *also, *(c for c in CONVENTIONS if c in self.index.binders), *self._lent_to(name)}
        names = list(needed)
        waiting = list(kept)
        filled: set[str] = set()
        while names or waiting:
            while names:
                waiting.extend(self._statements_about(names.pop()))
            while waiting:
                number = waiting.pop()
                kept.add(number)
                fresh = self.index.loads(number) - needed
                needed |= fresh
                names.extend(fresh)
                read = self.index.loads(number) - self.index.alterations.get(number, frozenset()) - filled
                filled |= read
                waiting.extend(n for name in read for n in self.index.registrations.get(name, ()) if n not in kept)
        return kept

    def _lent_to(self, name: str) -> set[str]:
        """Return the names in annotations of equally named parameters, for unannotated parameters of the definition
        `name`.
        """
        nodes = [self._statements[i] for i in self.index.binders.get(name, [])]
        bare = {n.arg for n in walk(*nodes) if isinstance(n, ast.arg) and n.annotation is None}
        return {lent for parameter in bare for lent in self.index.annotations.get(parameter, frozenset())}

    def _statements_about(self, name: str) -> Iterable[int]:
        binders = self.index.binders.get(name, [])
        yield from binders
        yield from self.index.operators.get(name, [])
        changers = self.index.changers.get(name, [])
        defined_here = any(not isinstance(self._statements[i], (ast.Import, ast.ImportFrom)) for i in binders)
        for number in changers:
            if defined_here or not isinstance(self._statements[number], (ast.FunctionDef, ast.ClassDef)):
                yield number
        if any(_makes_object(self._statements[i]) for i in binders):
            yield from self.index.method_callers.get(name, [])
        for part in (_taken_of(self._statements[i]) for i in binders):
            yield from self.index.module_callers.get(part, [])

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
    """Return the lines that a string literal from an earlier line reaches."""
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
    """Return `flags` for `FLAGS = flags.FLAGS`."""
    value = node.value if isinstance(node, ast.Assign) else None
    owner = value.value if isinstance(value, ast.Attribute) else None
    return owner.id if isinstance(owner, ast.Name) else ""


def _makes_object(node: ast.stmt) -> bool:
    """Return True if a statement binds an object that may be altered later: a container, or the result of a call or a
    decorator.
    """
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return bool(node.decorator_list)
    value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
    return isinstance(value, (ast.Call, ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp))
