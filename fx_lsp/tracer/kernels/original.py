"""The user's own code inside of a generated file, to compare with."""

from __future__ import annotations

import ast
import io
import re
import symtable
import sys
import tokenize
from collections.abc import Sequence

from fx_lsp.codegen.file.format import literal

FUTURE = "from __future__ import "


def original(source: str, package: str, result: str) -> tuple[str, tuple[str, ...]]:
    """The text of a function `original()` that executes the part of a file and returns `result`, an expression of what
    is defined there; and the `from __future__` imports that have to begin the file.

    Where the code cannot stand in a function it is text that is executed.
    """
    tree = ast.parse(source)
    body = [s for s in tree.body if not _is_dispensable(s)]
    future = tuple(ast.unparse(s) for s in body if ast.unparse(s).startswith(FUTURE))
    body = [s for s in body if not ast.unparse(s).startswith(FUTURE)]
    used = " ".join("\n".join(ast.unparse(s) for s in body if not isinstance(s, _IMPORTS)).split())
    body = [s for s in body if not isinstance(s, _IMPORTS) or _used(s, f"{used} {result}")]
    lines = source.split("\n")
    parts = [_segment(lines, s, package) for s in body]
    why = _why_not_inside(source, body)
    if why:
        return _executed("\n\n\n".join(map("\n".join, parts)), why, result), future
    text = ["def original():", '    """What the kernels were made from."""']
    before: ast.stmt | None = None
    for statement, part in zip(body, parts, strict=True):
        defined = isinstance(statement, _DEFINITIONS) or isinstance(before, _DEFINITIONS)
        if defined or (before is not None and _kind(before) != _kind(statement)):
            text.append("")
        text += indented(part)
        before = statement
    text += ["", f"    return {result}"] if before is not None else [f"    return {result}"]
    return "\n".join(text), future


def _used(statement: ast.Import | ast.ImportFrom, text: str) -> bool:
    """Whether a text uses names of an import; those that it does not use are left out of it."""

    def bound(alias: ast.alias) -> str:
        return alias.asname or (alias.name.partition(".")[0] if isinstance(statement, ast.Import) else alias.name)

    known = [a for a in statement.names if a.name == "*" or re.search(rf"\b{bound(a)}\b", text)]
    if len(known) < len(statement.names):
        statement.names, statement.end_lineno = known, None
    return bool(known)


_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _kind(statement: ast.stmt) -> str:
    """What stands together without an empty line: imports of the standard library, other imports, other statements."""
    if isinstance(statement, ast.Import):
        module = statement.names[0].name
    elif isinstance(statement, ast.ImportFrom):
        module = statement.module or ""
    else:
        return "statement"
    return "standard" if module.partition(".")[0] in sys.stdlib_module_names else "import"


def _is_dispensable(statement: ast.stmt) -> bool:
    """A docstring or other lone constant, or what runs only in a script."""
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.If) and "__name__" in {
        n.id for n in ast.walk(statement.test) if isinstance(n, ast.Name)
    }


def _segment(lines: Sequence[str], statement: ast.stmt, package: str) -> list[str]:
    """The lines of a statement, with its decorators; a relative import by its full name."""
    if isinstance(statement, ast.ImportFrom) and statement.level:
        base = package.split(".")[: len(package.split(".")) - statement.level + 1]
        module = ".".join([*base, *([statement.module] if statement.module else [])])
        return [ast.unparse(ast.ImportFrom(module, statement.names, 0))]
    if statement.end_lineno is None:  # some of its names are left out
        return [ast.unparse(statement)]
    decorators = statement.decorator_list if isinstance(statement, _DEFINITIONS) else []
    first = min([statement.lineno, *(d.lineno for d in decorators)])
    found = list(lines[first - 1 : statement.end_lineno])
    if statement.col_offset and not decorators:  # behind a semicolon
        return [ast.unparse(statement)]
    return [line.rstrip() if not line.strip() else line for line in found]


def indented(lines: Sequence[str]) -> list[str]:
    """Lines one level deeper, but for those that begin inside of a string that is no docstring."""
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


def _why_not_inside(source: str, body: Sequence[ast.stmt]) -> str:
    """Why statements of a module mean something else in a function; "" where they do not."""
    nodes = [n for s in body for n in ast.walk(s)]
    if any(isinstance(n, ast.ImportFrom) and any(a.name == "*" for a in n.names) for n in nodes):
        return "it imports all names of a module"
    if any(isinstance(n, ast.Global) for n in nodes):
        return "it assigns to global names"
    if any(isinstance(n, ast.Name) and n.id in ("globals", "__file__", "__name__", "eval", "exec") for n in nodes):
        return "it uses what only a module has"
    known = {s.get_name() for s in symtable.symtable(source, "<original>", "exec").get_symbols() if s.is_assigned()}
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            own = {n.id for n in _of_class(statement) if isinstance(n.ctx, ast.Store)}
            read = {n.id for n in _of_class(statement) if isinstance(n.ctx, ast.Load)}
            if own & read & known:
                return "a class of it has names of the module"
    return ""


def _of_class(statement: ast.ClassDef) -> list[ast.Name]:
    """The names in the statements of a class itself."""
    plain = [s for s in statement.body if not isinstance(s, _DEFINITIONS)]
    return [n for s in plain for n in ast.walk(s) if isinstance(n, ast.Name)]


def _executed(text: str, why: str, result: str) -> str:
    quotes = next((q for q in ('"""', "'''") if q not in text and not text.endswith(("\\", q[0]))), "")
    quoted = f"r{quotes}\n{text}\n{quotes}" if quotes else repr(text)
    return (
        f'def original():\n    """What the kernels were made from, as text: {why}."""\n'
        f"    source = {quoted}\n"
        '    names = {"__name__": "original"}\n'
        "    exec(source, names)\n"
        f"    return eval({literal(result)}, names)"
    )
