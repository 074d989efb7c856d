"""Check `# fx:` comments without running anything."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from fx_lsp.comments import FxComment, fx_comment
from fx_lsp.features.source.parameters import Parameters, signature_of
from fx_lsp.features.wording.problems import Problem
from fx_lsp.features.wording.text import sentence
from fx_lsp.model import Span, Target
from fx_lsp.specs import FX_COMMENT, CommentError, Item, comment_items, parse_comment
from fx_lsp.syntax import tree_of

_NEWLINE = re.compile(r"\r\n|\r|\n")
_DEFINITION = re.compile(r"\s*(@|(async\s+)?def\b|class\b)")
_CODE = "comment"


def comment_problems(file: str, text: str, targets: Iterable[Target]) -> tuple[Problem, ...]:
    """Return the problems of all `# fx:` comments of a text, each at its characters."""
    return _comment_problems(file, text, tuple(targets)) if "fx:" in text else ()


@lru_cache(maxsize=8)
def _comment_problems(file: str, text: str, targets: tuple[Target, ...]) -> tuple[Problem, ...]:
    left = _marked_lines(text)
    problems: list[Problem] = []
    commented: set[int] = set()
    for target in targets:
        first = _first_line(text, target.span.line)
        if not any(first <= number <= target.span.end_line for number in left):
            continue
        comment = fx_comment(text, target)
        numbers = {line.span.line for line in comment.lines} if comment is not None else set[int]()
        if comment is not None and not commented & numbers:
            problems += target_problems(text, target, comment)
        commented |= numbers
    left = {
        number: col for number, col in left.items() if number not in commented and not _above_definition(text, number)
    }
    return (*problems, *(_orphan(file, text, number, col) for number, col in _orphans(file, text, left)))


def without_doubles(own: Iterable[Problem], traced: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return both lists of problems, sorted. A comment problem of tracing is dropped if syntax alone found one on its
    lines.
    """
    first, others = tuple(own), tuple(traced)
    rest = (
        *(p for p in others if p.code != _CODE),
        *elsewhere((p for p in others if p.code == _CODE), (p.span for p in first)),
    )
    return tuple(sorted((*first, *rest), key=lambda p: (p.span.line, p.span.col, p.span.end_line, p.span.end_col)))


def elsewhere(problems: Iterable[Problem], spans: Iterable[Span]) -> Iterator[Problem]:
    """Yield the problems that share no line with `spans`."""
    occupied = {(span.file, line) for span in spans for line in range(span.line, span.end_line + 1)}
    for problem in problems:
        lines = range(problem.span.line, problem.span.end_line + 1)
        if not any((problem.span.file, line) in occupied for line in lines):
            yield problem


def target_problems(text: str, target: Target, comment: FxComment) -> Iterator[Problem]:
    """Yield the problems of the comment at one target."""

    def problem(message: str, start: int, end: int) -> Problem:
        return Problem(comment.place(start, end), "error", sentence(message), _CODE)

    parsed = parse_comment(comment.text)
    if isinstance(parsed, CommentError):
        yield problem(f"cannot parse the `# fx:` comment: {parsed.message}", parsed.col, parsed.end_col)
        return
    items, signature = comment_items(comment.text), signature_of(text, target)
    seen: set[tuple[bool, str]] = set()
    for item in items.items:
        if (item.in_init, item.name) in seen:
            yield problem(f"`{item.name}` is given twice", item.col, item.end_col)
        seen.add((item.in_init, item.name))
    if signature is None or target.kind == "graph":  # a graph's inputs are the placeholders that the code creates
        return
    if items.init is not None and signature.init is None:
        yield problem(f"`init(…)` only applies to modules and methods; {target.name} is a function", *items.init)
    if items.mode is not None and signature.init is None:
        message = f"`{items.mode.name}()` only applies to modules and methods; {target.name} is a function"
        yield problem(message, items.mode.col, items.mode.end_col)
    for item in items.items:
        parameters = signature.init if item.in_init else signature.call
        if parameters is not None and parameters.complete and item.name not in parameters:
            yield problem(_unknown(item, target, parameters), item.col, item.end_col)


def _unknown(item: Item, target: Target, parameters: Parameters) -> str:
    names = ", ".join(p.name for p in parameters.seen)
    of = f"{target.name}'s constructor" if item.in_init else target.name
    return f"{of} has no parameter `{item.name}`" + (f"; its parameters are {names}" if names else "; it takes none")


def _orphan(file: str, text: str, number: int, col: int) -> Problem:
    line = _lines(text)[number - 1]
    start, end = len(line[:col].encode(errors="replace")), len(line.rstrip().encode(errors="replace"))
    message = "This comment is not attached to a function or class: write it directly above one, or first in its body."
    return Problem(Span(file, number, start, number, end), "hint", message, _CODE)


def _orphans(file: str, text: str, marked: dict[int, int]) -> list[tuple[int, int]]:
    """Return the marked lines that are comments at no function or class; nothing if the text does not parse."""
    tree = tree_of(text) if marked else None
    if tree is None:
        return []
    left = dict(marked)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "fx:" in node.value:
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                left.pop(number, None)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and left:
            for number in _reached(file, text, node, left):
                left.pop(number, None)
    return sorted(left.items())


def _reached(
    file: str, text: str, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, marked: Iterable[int]
) -> list[int]:
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    start = _first_line(text, first)
    last = next((n.lineno for n in node.body[1:2]), node.end_lineno or node.lineno)
    if not any(start <= number <= last for number in marked):
        return []
    name = Span(file, node.lineno, node.col_offset, node.lineno, node.col_offset)
    whole = Span(file, first, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0)
    kind = "module" if isinstance(node, ast.ClassDef) else "function"
    target = Target(file, node.name, kind, name, whole)
    above = fx_comment(text, target)
    return [] if above is None else [line.span.line for line in above.lines]


def _first_line(text: str, definition: int) -> int:
    """Return the first of the comment lines directly above the line of a definition."""
    lines = _lines(text)
    while definition > 1 and lines[definition - 2].lstrip().startswith("#"):
        definition -= 1
    return definition


def _above_definition(text: str, number: int) -> bool:
    """Return True if the first line after a comment begins a definition. Does not parse, for speed."""
    lines = _lines(text)
    while number <= len(lines) and lines[number - 1].lstrip().startswith("#"):
        number += 1
    return number <= len(lines) and _DEFINITION.match(lines[number - 1]) is not None


def _marked_lines(text: str) -> dict[int, int]:
    """Return the lines that look like a `# fx:` comment, with the index of its `#`, the first of the line."""
    matches = {n: FX_COMMENT.search(line) for n, line in enumerate(_lines(text), 1) if "fx:" in line}
    return {n: match.start() for n, match in matches.items() if match and match.start() == match.string.find("#")}


@lru_cache(maxsize=4)
def _lines(text: str) -> tuple[str, ...]:
    return tuple(_NEWLINE.split(text))
