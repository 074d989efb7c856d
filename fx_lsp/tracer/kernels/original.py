"""Embed the user's own code in a generated file, for comparison."""

from __future__ import annotations

import ast
import io
import re
import symtable
import sys
import tokenize
from collections.abc import Callable, Sequence

from fx_lsp.codegen.file.format import literal

FUTURE = "from __future__ import "


def original(source: str, package: str, result: str) -> tuple[str, tuple[str, ...]]:
    """Return the text of a function `original()` that executes the part of a file and returns `result`, an expression
    of its definitions; and the `from __future__` imports that have to begin the file.

    If the code cannot be inside of a function, it is text that is executed.
    """
    future, body = _statements(source, result)
    reason = _reason_for_text(source, body)
    if not reason:
        body = _without_torch(body)
    lines = source.split("\n")
    parts = [_segment(lines, s, package) for s in body]
    if reason:
        return _executed("\n\n\n".join(map("\n".join, parts)), reason, result), future
    text = ["def original():", '    """Return what the kernels were generated from."""']
    before: ast.stmt | None = None
    for statement, part in zip(body, parts, strict=True):
        defined = isinstance(statement, _DEFINITIONS) or isinstance(before, _DEFINITIONS)
        if defined or (before is not None and _kind(before) != _kind(statement)):
            text.append("")
        text += indented(part)
        before = statement
    text += ["", f"    return {result}"] if before is not None else [f"    return {result}"]
    return "\n".join(text), future


def _statements(source: str, result: str) -> tuple[tuple[str, ...], list[ast.stmt]]:
    """Return the `from __future__` imports of a file, and the other statements that its definitions or `result` use."""
    body = [s for s in ast.parse(source).body if not _is_dispensable(s)]
    future = tuple(ast.unparse(s) for s in body if ast.unparse(s).startswith(FUTURE))
    body = [s for s in body if not ast.unparse(s).startswith(FUTURE)]
    used = " ".join("\n".join(ast.unparse(s) for s in body if not isinstance(s, _IMPORTS)).split())
    return future, [s for s in body if not isinstance(s, _IMPORTS) or _used(s, f"{used} {result}")]


def _without_torch(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return statements without `import torch`, which begins the file, unless others of them bind the name as well."""
    names = [n for s in body for n in ast.walk(s)]
    binding = [_bound(a, n) for n in names if isinstance(n, _IMPORTS) for a in n.names]
    binding += [n.id for n in names if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    if binding.count("torch") != 1:
        return list(body)
    return [s for s in body if not (isinstance(s, ast.Import) and ast.unparse(s) == "import torch")]


def _bound(alias: ast.alias, statement: ast.Import | ast.ImportFrom) -> str:
    """Return the name that a part of an import binds."""
    return alias.asname or (alias.name.partition(".")[0] if isinstance(statement, ast.Import) else alias.name)


def _used(statement: ast.Import | ast.ImportFrom, text: str) -> bool:
    """Return True if a text uses names of an import; unused ones are removed from it."""
    used = [a for a in statement.names if a.name == "*" or re.search(rf"\b{_bound(a, statement)}\b", text)]
    if len(used) < len(statement.names):
        statement.names, statement.end_lineno = used, None
    return bool(used)


_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _kind(statement: ast.stmt) -> str:
    """Return the kind of a statement; those of one kind are grouped without empty lines."""
    if isinstance(statement, ast.Import):
        module = statement.names[0].name
    elif isinstance(statement, ast.ImportFrom):
        module = statement.module or ""
    else:
        return "statement"
    return "standard" if module.partition(".")[0] in sys.stdlib_module_names else "import"


def _is_dispensable(statement: ast.stmt) -> bool:
    """Return True for a docstring or another lone constant, and for code that only runs in a script."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.If) and "__name__" in {
        n.id for n in ast.walk(statement.test) if isinstance(n, ast.Name)
    }


def _segment(lines: Sequence[str], statement: ast.stmt, package: str) -> list[str]:
    """Return the lines of a statement, with its decorators; a relative import becomes absolute."""
    if isinstance(statement, ast.ImportFrom) and statement.level:
        base = package.split(".")[: len(package.split(".")) - statement.level + 1]
        module = ".".join([*base, *([statement.module] if statement.module else [])])
        return [ast.unparse(ast.ImportFrom(module, statement.names, 0))]
    if statement.end_lineno is None:  # some of its names were removed
        return [ast.unparse(statement)]
    decorators = statement.decorator_list if isinstance(statement, _DEFINITIONS) else []
    first = min([statement.lineno, *(d.lineno for d in decorators)])
    if statement.col_offset and not decorators:  # after a semicolon
        return [ast.unparse(statement)]
    return [line.rstrip() if not line.strip() else line for line in lines[first - 1 : statement.end_lineno]]


def indented(lines: Sequence[str]) -> list[str]:
    """Return lines indented by one level, except those that begin inside of a string that is not a docstring."""
    inside: set[int] = set()
    statement = True
    start = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines) + "\n").readline):
            kind = tokenize.tok_name[token.type]
            if kind.endswith("STRING_START"):
                start = token.start[0]
            elif kind.endswith("STRING_END"):
                inside.update(range(start + 1, token.end[0] + 1))
            elif kind == "STRING" and not statement:
                inside.update(range(token.start[0] + 1, token.end[0] + 1))
            if kind not in ("NL", "COMMENT"):
                statement = kind in ("NEWLINE", "INDENT", "DEDENT", "ENCODING")
    except tokenize.TokenError:
        pass
    return [line if n in inside or not line.strip() else f"    {line}" for n, line in enumerate(lines, 1)]


def _reason_for_text(source: str, body: Sequence[ast.stmt]) -> str:
    """Return why statements of a module change their meaning in a function; "" if they do not."""
    nodes = [n for s in body for n in ast.walk(s)]
    for needs_module, reason in _NEEDS_MODULE:
        if any(map(needs_module, nodes)):
            return reason
    symbols = symtable.symtable(source, "<original>", "exec").get_symbols()
    assigned = {s.get_name() for s in symbols if s.is_assigned()}
    if any(_shadows(s, assigned) for s in body if isinstance(s, ast.ClassDef)):
        return "one of its classes uses names of the module"
    return ""


def _imports_all(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)


def _is_of_module(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id in ("globals", "__file__", "__name__", "eval", "exec")


_NEEDS_MODULE: tuple[tuple[Callable[[ast.AST], bool], str], ...] = (
    (_imports_all, "it imports all names of a module"),
    (lambda node: isinstance(node, ast.Global), "it assigns to global names"),
    (_is_of_module, "it uses what only a module has"),
)
"""The nodes that cannot be in a function, each with the reason."""


def _shadows(statement: ast.ClassDef, assigned: set[str]) -> bool:
    """Return True if a class both reads and stores a name that the module assigns: in a function, it is unbound."""
    plain = [s for s in statement.body if not isinstance(s, _DEFINITIONS)]
    names = [n for s in plain for n in ast.walk(s) if isinstance(n, ast.Name)]
    stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
    read = {n.id for n in names if isinstance(n.ctx, ast.Load)}
    return bool(stored & read & assigned)


def _executed(text: str, reason: str, result: str) -> str:
    quotes = next((q for q in ('"""', "'''") if q not in text and not text.endswith(("\\", q[0]))), "")
    quoted = f"r{quotes}\n{text}\n{quotes}" if quotes else repr(text)
    return (
        f'def original():\n    """Return the original, as text: {reason}."""\n'
        f"    source = {quoted}\n"
        '    names = {"__name__": "original"}\n'
        "    exec(source, names)\n"
        f"    return eval({literal(result)}, names)"
    )
