"""Move between the values of a graph: where a value is computed, who reads it, and the outline of the graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fx_lsp.features.documents.document import Line
from fx_lsp.features.kernels import RenderedView
from fx_lsp.features.wording.text import one_line
from fx_lsp.model import Node, Span

_NAME = re.compile(r"(?<![\w.'\"])[^\W\d]\w*(?!\w*=[^=]|\w*['\"])")
_COMMENT = "  # "
_OPENING = re.compile(r"def |class |@")
_CLOSED = re.compile(r"[\w@#]")
_SHOWN = 6
TokenKind = Literal["parameter", "variable", "property", "function", "type", "comment"]
TOKEN_KINDS: tuple[TokenKind, ...] = ("parameter", "variable", "property", "function", "type", "comment")


class Mention(NamedTuple):
    """Hold a place in a document that names a value: columns are bytes of UTF-8. `defines` is True on the left."""

    name: str
    span: Span
    defines: bool


class Token(NamedTuple):
    """Hold a part of a line, in bytes of UTF-8, and what it is."""

    line: int
    col: int
    end_col: int
    kind: TokenKind


@dataclass(frozen=True)
class Symbol:
    """Hold an entry of an outline: a graph, the operations of one line of the code, or a value."""

    name: str
    detail: str
    kind: Literal["function", "line", "value"]
    span: Span
    children: tuple[Symbol, ...] = ()


def mention_at(shown: RenderedView, number: int, col: int) -> Mention | None:
    """Return the value named at a place of a document, else the one that the line computes; None without one."""
    mentions = _mentions(shown, number)
    named = [mention for mention in mentions if mention.span.col <= col <= mention.span.end_col]
    computed = [mention for mention in mentions if mention.defines]
    return next(iter([*named, *(computed if len(computed) == 1 else [])]), None)


def definition_of(shown: RenderedView, name: str) -> Span | None:
    """Return where a document computes a value; the line that folds it, if it is not shown; None without one."""
    index = shown.document.line_of(name)
    if index is None:
        return None
    own = (m.span for m in _mentions(shown, index + 1) if m.name == name and m.defines)
    return next(own, _whole(shown.document.lines[index], index + 1))


def mentions_of(shown: RenderedView, name: str) -> list[Mention]:
    """Return the places of a document that name a value, in order."""
    lines = range(1, len(shown.document.lines) + 1)
    return [mention for number in lines for mention in _mentions(shown, number) if mention.name == name]


def readers_of(shown: RenderedView, name: str) -> list[str]:
    """Return the values that are computed from a value, in the order of execution."""
    wanted = set(shown.nodes[name].users) if name in shown.nodes else set[str]()
    return [node for node in shown.nodes if node in wanted]


def sources_of(shown: RenderedView, name: str) -> list[str]:
    """Return the values that a value is computed from."""
    return [source for source in shown.nodes[name].inputs if source in shown.nodes] if name in shown.nodes else []


def value_facts(shown: RenderedView, name: str) -> list[str]:
    """Return who reads a value, for its hover."""
    readers = readers_of(shown, name)
    if not readers:
        return []
    rest = f" and {len(readers) - _SHOWN:,} more" if len(readers) > _SHOWN else ""
    names = ["the results" if shown.nodes[reader].op == "output" else reader for reader in readers[:_SHOWN]]
    return [f"read by {', '.join(names)}{rest}"]


def outline(shown: RenderedView) -> tuple[Symbol, ...]:
    """Return the functions of a document; in each, the lines of the code, with the values that they compute."""
    lines = shown.document.lines
    starts = [i for i, line in enumerate(lines) if line.text.startswith("def ")]
    return tuple(_function(shown, start, end) for start, end in zip(starts, [*starts[1:], len(lines)], strict=True))


def _function(shown: RenderedView, start: int, end: int) -> Symbol:
    lines = shown.document.lines
    groups: list[list[int]] = [[start]]  # the first line of each, then the lines with its values
    for index in range(start, end):
        if lines[index].text.startswith("    # ") and lines[index].spans:
            groups.append([index])
        elif lines[index].nodes:
            groups[-1].append(index)
    children = tuple(_group(shown, head, members) for head, *members in groups if members)
    name = lines[start].text.removeprefix("def ").partition("(")[0]
    last = max((i for i in range(start, end) if lines[i].text.strip()), default=start)
    return Symbol(name, "", "function", _between(lines, start, last), children)


def _group(shown: RenderedView, head: int, members: Sequence[int]) -> Symbol:
    lines = shown.document.lines
    values = tuple(
        Symbol(name, one_line(shown.nodes[name].spec or "", 60), "value", _whole(lines[i], i + 1))
        for i in members
        for name in lines[i].nodes
        if name in shown.nodes and shown.nodes[name].op != "output"
    )
    text = lines[head].text.strip()
    title = text.removeprefix("# ") if text.startswith("#") else "inputs"
    return Symbol(title, "", "line", _between(lines, head, members[-1]), values)


def folds(texts: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """Yield the lines (from 1) that fold together, the last without text below; and whether they are a comment.

    These are blocks of comments, functions and classes with their decorators, and the operations of a source line.
    """
    for number, text in enumerate(texts, start=1):
        before = texts[number - 2] if number > 1 else ""
        if text.startswith("#") and not before.startswith("#"):
            last = _until(texts, number, lambda line: not line.startswith("#"))
        elif _OPENING.match(text) and not before.startswith("@"):
            last = _until(texts, number, lambda line: _CLOSED.match(line) is not None)
        elif re.match(r" {4}# \S+:\d+", text):
            last = _until(texts, number, lambda line: not line.strip() or not line[0].isspace())
        else:
            continue
        if last > number:
            yield number, last, text.startswith("#")


def _until(texts: Sequence[str], number: int, ends: Callable[[str], bool]) -> int:
    """Return the last line with text before the first one after `number` that ends a fold."""
    last = number
    for after in range(number + 1, len(texts) + 1):
        text = texts[after - 1]
        if ends(text) and not texts[after - 2].startswith("@"):
            break
        last = after if text.strip() else last
    return last


def tokens(shown: RenderedView) -> Iterator[Token]:
    """Yield the kinds of the parts of a graph's lines in order: inputs, values, operations, specs and comments."""
    for number, line in enumerate(shown.document.lines, start=1):
        yield from sorted(_line_tokens(shown, line, number))


def _line_tokens(shown: RenderedView, line: Line, number: int) -> Iterator[Token]:
    text = line.text
    if text.lstrip().startswith("#"):
        yield _token(text, number, _indent(text), len(text), "comment")
        return
    code, separator, _ = text.partition(_COMMENT)
    if separator:
        yield _token(text, number, len(code) + 2, len(text), "comment")
    for mention in _mentions(shown, number):
        yield Token(number, mention.span.col, mention.span.end_col, _kind(shown.nodes[mention.name]))
    nodes = [shown.nodes[name] for name in line.nodes if name in shown.nodes]
    if len(nodes) == 1:
        head, _, call = code.partition(" = ")
        spec = head.find(": ")
        if spec >= 0:
            yield _token(text, number, spec + 2, len(head.rstrip(",")), "type")
        if nodes[0].computes and call.startswith(nodes[0].target):
            start = len(head) + 3
            yield _token(text, number, start, start + len(nodes[0].target), "function")


def _kind(node: Node) -> TokenKind:
    return "parameter" if node.op == "placeholder" else "property" if node.op == "get_attr" else "variable"


def _mentions(shown: RenderedView, number: int) -> list[Mention]:
    """Return the values that a line names. Specs, comments and names of arguments are no values."""
    line = shown.document.lines[number - 1]
    if not line.nodes or line.text.lstrip().startswith("#"):
        return []
    code = line.text.partition(_COMMENT)[0]
    if code.startswith("def "):
        starts = ((name, re.search(rf"[( ]{name}(?=:)", code)) for name in line.nodes if name in shown.nodes)
        return [Mention(n, _span(code, number, m.start() + 1, m.end()), True) for n, m in starts if m is not None]
    head, assigns, _ = code.partition(" = ")
    reads = code.lstrip().startswith("return ")
    names = len(head.partition(":")[0]) if assigns or not reads else 0
    return [
        Mention(match[0], _span(code, number, *match.span()), match.start() < names)
        for match in _NAME.finditer(code)
        if match[0] in shown.nodes and (match.start() < names or reads or (assigns and match.start() > len(head)))
    ]


def _token(text: str, number: int, start: int, end: int, kind: TokenKind) -> Token:
    span = _span(text, number, start, end)
    return Token(number, span.col, span.end_col, kind)


def _span(text: str, number: int, start: int, end: int) -> Span:
    return Span("", number, len(text[:start].encode()), number, len(text[:end].encode()))


def _whole(line: Line, number: int) -> Span:
    return _span(line.text, number, _indent(line.text), len(line.text))


def _between(lines: Sequence[Line], first: int, last: int) -> Span:
    return Span("", first + 1, _indent(lines[first].text), last + 1, len(lines[last].text.encode()))


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())
