"""Read Python text that may be broken: one parse, its lines as UTF-8 bytes, and a walk without recursion."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from fx_lsp import files
from fx_lsp.messages.texts import NESTED_TOO_DEEPLY, NOT_UNICODE, SYNTAX_ERROR, TOO_LONG
from fx_lsp.model import Failure, Span
from fx_lsp.syntax import parse as parse_python

MAX_TEXT = 2_000_000
"""The longest text that is parsed, in characters."""
_NEWLINE = re.compile(r"\r\n|\r|\n")


def parse(file: str, text: str) -> ast.Module | Failure:
    """Return the syntax tree of `text`, or a `Failure` of kind "syntax" at the place of the error.

    IPython commands are skipped where there may be some. A text longer than `MAX_TEXT` is not parsed.
    """
    if len(text) > MAX_TEXT:
        return TOO_LONG.failure(Span(file, 1, 0, 1, 0), length=len(text), limit=MAX_TEXT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            python = python_of(text) if may_have_commands(file, text) else text
            return parse_python(python.removeprefix("\ufeff"), file)
    except SyntaxError as error:
        return SYNTAX_ERROR.failure(_error_span(file, text, error), error=error.msg)
    except UnicodeEncodeError as error:
        line = len(split_lines(text[: error.start]))
        return NOT_UNICODE.failure(Span(file, line, 0, line, 0))
    except (RecursionError, MemoryError):
        return NESTED_TOO_DEEPLY.failure(Span(file, 1, 0, 1, 0))
    except ValueError as error:
        line = len(split_lines(text.partition("\0")[0]))
        return SYNTAX_ERROR.failure(Span(file, line, 0, line, 0), error=error)


_COMMAND = re.compile(r"([ \t]*)(\w+[ \t]*=[ \t]*)?([%!].*|\?{1,2}[^?]+|[%\w.*]+\?{1,2}[ \t]*)")
"""A line that is an IPython command (`%matplotlib inline`, `!pip install x`, `torch.stack?`), or assigns the result of
one.
"""
_CELL = re.compile(r"#[ \t]*%%")
"""The beginning of a line that begins a cell of a Python file."""
_ELSEWHERE = frozenset(
    {
        *("bash", "cmd", "perl", "pypy", "python", "python2", "python3", "ruby", "script", "sh", "sx", "system"),
        *("file", "html", "javascript", "js", "latex", "markdown", "svg", "writefile"),
    }
)
"""The cell magics of IPython that pass a cell to another program, or write or show it."""
MAX_COMMANDS = 200


def may_have_commands(file: str, text: str) -> bool:
    """Return True if lines of a text may be IPython commands: in a document, and in a Python file with `# %%` cells."""
    return not file.endswith(".py") or any(map(_CELL.match, split_lines(text)))


@lru_cache(maxsize=8)
def python_of(text: str) -> str:
    """Return the text without its IPython commands, with line numbers kept; a text without any is unchanged.

    A line is a command only if Python's parser stops there: a line that begins with `%` may continue an expression.
    `# %%` cells in other languages (`%%bash`) are left empty.
    """
    lines = split_lines(text)
    if not any(map(_COMMAND.fullmatch, lines)):
        return text
    lines = _without_foreign_cells(lines)
    for _ in range(MAX_COMMANDS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                parse_python("\n".join(lines).removeprefix("\ufeff"))
            break
        except SyntaxError as error:
            number = (error.lineno or 0) - 1
            match = _COMMAND.fullmatch(lines[number]) if 0 <= number < len(lines) else None
            if match is None:
                break
            last = number
            while lines[last].endswith("\\") and last + 1 < len(lines):  # it continues on the next line
                last += 1
            lines[number : last + 1] = [f"{match[1]}{match[2] or ''}None", *[""] * (last - number)]
        except (ValueError, RecursionError, MemoryError):
            break
    return "\n".join(lines)


def is_foreign(cell: str) -> bool:
    """Return True if a cell begins with a command on the whole cell that does not run it in the notebook's Python
    (`%%bash`), or if the rest is not Python.
    """
    name = re.match(r"\s*%%(\w+)", cell)
    return name is not None and (name[1].lower() in _ELSEWHERE or isinstance(parse("<cell>", cell), Failure))


def _without_foreign_cells(lines: list[str]) -> list[str]:
    """Return the lines of a Python file with those of cells in other languages left empty."""
    markers = [*(number for number, line in enumerate(lines) if _CELL.match(line)), len(lines)]
    python = list(lines)
    for before, end in pairwise(markers):
        if is_foreign("\n".join(lines[before + 1 : end])):
            python[before + 1 : end] = [""] * (end - before - 1)
    return python


def split_lines(text: str) -> list[str]:
    """Return the lines of `text` without their ends, as Python counts them (`str.splitlines` also splits at form
    feeds).
    """
    return _NEWLINE.split(text)


def walk(*roots: ast.AST) -> Iterator[ast.AST]:
    """Yield every node below and including `roots`, in no particular order, whatever the depth."""
    stack: list[ast.AST] = list(roots)
    while stack:
        node = stack.pop()
        yield node
        push_children(node, stack)


def push_children(node: ast.AST, stack: list[ast.AST]) -> None:
    """Append the direct children of `node` to `stack`, without the contexts "load" and "store"."""
    for name in node._fields:
        if name == "ctx":
            continue
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            stack.append(value)
        elif isinstance(value, list):
            stack.extend(item for item in value if isinstance(item, ast.AST))  # pyright: ignore[reportUnknownVariableType]


def start_of(node: ast.stmt) -> tuple[int, int]:
    """Return the line and column at which a statement begins, including its decorators."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.decorator_list:
        return min(node.lineno, node.decorator_list[0].lineno), node.col_offset
    return node.lineno, node.col_offset


def end_of(node: ast.stmt) -> tuple[int, int]:
    """Return the line and column at which a statement ends."""
    line, col = node.end_lineno, node.end_col_offset
    assert line is not None and col is not None, "ast.parse sets every end position"
    return line, col


def module_name(file: str, text: str | None = None) -> tuple[str, str, str]:
    """Return `__name__` and `__package__` of a file, and the directory to import it from: above the outermost
    `__init__.py`.

    As many directories as its relative imports go up are packages, even without an `__init__.py`. The name is never
    `__main__`. Without a `text`, the file on disk is read.
    """
    path = Path(file)
    directory = path.parent
    packages: list[str] = []
    levels = _relative_levels(text) if text is not None else _levels_on_disk(path)
    while directory.parent != directory and ((directory / "__init__.py").is_file() or len(packages) < levels):
        packages.insert(0, directory.name)
        directory = directory.parent
    package = ".".join(packages)
    if path.stem == "__init__" and packages:
        return package, package, str(directory)
    stem = path.stem if packages or path.stem != "__main__" else "main"
    return ".".join([*packages, stem]), package, str(directory)


_RELATIVE = re.compile(r"^[ \t]*from[ \t]+(\.+)", re.MULTILINE)


def _relative_levels(text: str) -> int:
    """Return how many packages the relative imports of a text need around it: 2 for `from ..blocks import Block`."""
    return max((len(match[1]) for match in _RELATIVE.finditer(text)), default=0)


def _levels_on_disk(path: Path) -> int:
    try:
        return _levels_of(str(path), path.stat().st_mtime_ns)
    except (OSError, ValueError):
        return 0


@lru_cache(maxsize=512)
def _levels_of(path: str, mtime_ns: int) -> int:
    return _relative_levels(files.read_text(path, "replace"))


def _error_span(file: str, text: str, error: SyntaxError) -> Span:
    lines = split_lines(text)
    if error.lineno is None and "\0" in text:
        error.lineno = len(split_lines(text.partition("\0")[0]))
    line = min(max(error.lineno or 1, 1), len(lines))
    content = lines[line - 1]
    start = _byte_column(content, (error.offset or 1) - 1)
    end_line = error.end_lineno or line
    if end_line == line and (error.end_offset or 0) > (error.offset or 0):
        end = _byte_column(content, (error.end_offset or 1) - 1)
    else:
        end = max(start, _byte_column(content, len(content.rstrip())))
    return Span(file, line, start, line, end)


def _byte_column(line: str, characters: int) -> int:
    return len(line[: max(characters, 0)].encode("utf-8", "surrogatepass"))
