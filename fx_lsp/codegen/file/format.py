"""Format Python: write values as literals, and break long statements over lines."""

from __future__ import annotations

import ast
import io
import keyword
import math
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeAlias

import torch

from fx_lsp.codegen.ir.text import LINE_WIDTH

_OPEN, _CLOSE = "([{", ")]}"
_PRIORITIES: tuple[frozenset[str], ...] = (
    frozenset({"if", "else"}),
    frozenset({"or"}),
    frozenset({"and"}),
    frozenset({"in", "is", "<", ">", "<=", ">=", "==", "!="}),
    frozenset({"|"}),
    frozenset({"^"}),
    frozenset({"&"}),
    frozenset({"<<", ">>"}),
    frozenset({"+", "-"}),
    frozenset({"*", "/", "//", "%", "@"}),
)
"""The operators that a line may be broken before, lowest precedence first."""


def literal(value: Any) -> str | None:
    """Return a value as a Python literal, or None if it has none."""
    kind = type(value)
    if kind in (bool, int, type(None), type(Ellipsis)):
        return "..." if value is ... else repr(value)
    if kind is float:
        return repr(value).replace("e+", "e") if math.isfinite(value) else f'float("{value}")'
    if kind is str:
        text = repr(value)
        return text if '"' in text or text[0] == '"' else f'"{text[1:-1]}"'.replace("\\'", "'")
    if kind in (torch.dtype, torch.memory_format, torch.layout):
        return str(value)
    if kind is torch.device:
        return f'torch.device("{value}")'
    return _container_literal(value)


def _container_literal(value: Any) -> str | None:
    """Return a tuple, list or dictionary as a Python literal, or None for any other value."""
    kind = type(value)
    if kind in (tuple, list, torch.Size):
        parts = [literal(v) for v in value]
        if None in parts:
            return None
        inside = ", ".join(p for p in parts if p is not None)
        if kind is list:
            return f"[{inside}]"
        return f"({inside},)" if len(parts) == 1 else f"({inside})"
    if kind is dict:
        pairs = [(literal(k), literal(v)) for k, v in value.items()]
        if any(k is None or v is None for k, v in pairs):
            return None
        return "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}"
    return None


@dataclass(frozen=True)
class LogicalLine:
    """A logical line: the lines from `start` to `end`, exclusive, as one text. The text is None if it must not
    change.
    """

    start: int
    end: int
    text: str | None
    indent: int


def _source_tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """Yield the tokens of a text, with an f-string as one: Python 3.12 splits it, and only that and later versions read
    a line that breaks inside of one. Raises TokenError for an incomplete text.
    """
    lines = list(io.StringIO(text))
    begun: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(iter(lines).__next__):
        kind = tokenize.tok_name[token.type]
        if kind in ("FSTRING_START", "TSTRING_START"):
            begun.append(token)
        elif kind in ("FSTRING_END", "TSTRING_END"):
            start, end = begun.pop().start, token.end
            if not begun:
                inside = [*lines[start[0] - 1 : end[0] - 1], lines[end[0] - 1][: end[1]]]
                string = "".join(inside)[start[1] :]
                yield tokenize.TokenInfo(tokenize.STRING, string, start, end, token.line)
        elif not begun:
            yield token


def statements(lines: Sequence[str]) -> Iterator[LogicalLine]:
    """Yield the logical lines of a text in order, without comments and empty lines."""
    tokens: list[tokenize.TokenInfo] = []
    ignored = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER)
    for token in _source_tokens("\n".join(lines) + "\n"):
        if token.type in ignored or (token.type == tokenize.COMMENT and not tokens):
            continue
        if token.type != tokenize.NEWLINE:
            tokens.append(token)
            continue
        if tokens:
            first, last = tokens[0].start[0] - 1, tokens[-1].end[0]
            yield LogicalLine(first, last, _joined(tokens), tokens[0].start[1])
        tokens = []


def _joined(tokens: Sequence[tokenize.TokenInfo]) -> str | None:
    text = ""
    for number, token in enumerate(tokens):
        if token.type == tokenize.COMMENT or token.start[0] != token.end[0]:
            return None
        if number:
            before = tokens[number - 1]
            if before.end[0] == token.start[0]:
                text += " " * (token.start[1] - before.end[1])
            elif token.string in _CLOSE:
                text = _without_comma(text)
            elif before.string not in _OPEN and token.string != ".":
                text += " "
        text += token.string
    return text


def _without_comma(text: str) -> str:
    """Return a text that precedes a closing bracket without its trailing comma, unless the comma makes a tuple."""
    if not text.endswith(","):
        return text
    depth, commas, at = 0, 0, len(text) - 1
    while at >= 0 and depth >= 0:
        depth += (text[at] in _CLOSE) - (text[at] in _OPEN)
        commas += text[at] == "," and depth == 0
        at -= 1
    before = text[at] if at >= 0 else ""
    tuple_ = text[at + 1] == "(" and not (before.isalnum() or before in "_)]}\"'")
    return text if tuple_ and commas == 1 else text[:-1]


def break_lines(text: str, indent: int) -> list[str]:
    """Return a statement on as few lines as it needs. Lines are filled."""
    pad = " " * indent
    if indent + len(text) <= LINE_WIDTH:
        return [pad + text]
    first, *others = min(_layouts(text, indent), key=lambda lines: _cost(lines, indent, 0))
    lines = [pad + first, *others]
    return lines if _same(text, lines) else [pad + text]


def _same(text: str, lines: Sequence[str]) -> bool:
    """Return True if lines parse to the same syntax tree as a text. Returns False if either does not parse."""
    try:
        return ast.dump(ast.parse(_complete(text))) == ast.dump(ast.parse(_complete("\n".join(lines).lstrip())))
    except SyntaxError:
        return False


def _complete(text: str) -> str:
    if text.startswith("@"):
        return f"{text}\ndef f(): ..."
    if text.startswith(("elif ", "else:")):
        return f"if x: ...\n{text} ..."
    if text.startswith(("except", "finally")):
        return f"try: ...\n{text} ..."
    return f"{text} ..." if text.endswith(":") else text


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int
    depth: int


@lru_cache(maxsize=4096)
def _tokens(text: str) -> tuple[_Token, ...]:
    tokens: list[_Token] = []
    depth = 0
    try:
        for token in _source_tokens(text):
            if not token.string.strip():
                continue
            if token.string in _CLOSE and token.type == tokenize.OP:
                depth -= 1
            tokens.append(_Token(token.string, token.start[1], token.end[1], depth))
            if token.string in _OPEN and token.type == tokenize.OP:
                depth += 1
    except tokenize.TokenError:
        pass
    return tuple(tokens)


_Lines: TypeAlias = "tuple[str, ...]"
"""The lines of an expression. The first begins where the expression begins, and has no indentation."""


def _cost(lines: _Lines, first: int, last: int) -> tuple[int, int]:
    """Return how many characters of lines do not fit, and the number of lines. Lines with a large indentation count
    twice.

    The first line begins at the column `first`, and `last` characters follow the last line.
    """
    lengths = [len(line) for line in lines]
    lengths[0] += first
    lengths[-1] += last
    deep = sum(len(line) - len(line.lstrip()) > LINE_WIDTH // 2 for line in lines[1:])
    return sum(max(0, length - LINE_WIDTH) for length in lengths), len(lines) + deep


def _layouts(text: str, indent: int) -> Iterator[_Lines]:
    """Yield the ways to break a statement, best first among those with the same number of lines."""
    yield (text,)
    head, value, tail = _parts(text)
    tokens = _tokens(value)
    has_elements = any(t.depth == 0 and t.text == "," for t in tokens)
    has_parts = has_elements or bool(_operators(tokens))
    if has_parts:
        yield from _opened(f"{head}({value}){tail}", len(head), indent, indent, 0)
    if head.endswith(" = ") and "," in head and indent + len(head) + (value.find("(") + 1 or len(value)) > LINE_WIDTH:
        targets = head[:-3].removeprefix("(").removesuffix(")")
        yield from _opened(f"({targets}) = {value}{tail}", 0, indent, indent, 0)
    openings = [] if has_elements else _openings(text)
    chosen = openings[:1] if text.startswith(_DEFINITIONS) else _last(openings, has_parts)
    for opening in chosen:
        yield from _opened(text, opening, indent, indent, 0)
    if not has_parts and len(_links(tokens)) > 1:
        yield from _opened(f"{head}({value}){tail}", len(head), indent, indent, 0)


def _last(openings: Sequence[int], has_parts: bool) -> list[int]:
    """Return the brackets to try, last first: only one if the text can be broken into parts as well."""
    return list(reversed(openings[-1:] if has_parts else openings[-MAX_TRIED:]))


MAX_TRIED = 3
"""The largest number of brackets of a text that are tried, because the time is a multiple of it at every depth."""


_DEFINITIONS = ("def ", "class ", "async def ")


def _parts(text: str) -> tuple[str, str, str]:
    """Return the start of a statement, the expression that may have brackets of its own, and the rest."""
    tokens = _tokens(text)
    word = tokens[0].text
    assigned = [t for t in tokens if t.depth == 0 and t.text.endswith("=") and t.text not in ("==", "!=", "<=", ">=")]
    start, end = 0, len(text)
    if word in ("if", "while", "elif", "for") and text.endswith(":"):
        last = next(t for t in tokens if t.depth == 0 and t.text == "in") if word == "for" else tokens[0]
        start, end = last.end + 1, len(text) - 1
    elif assigned and not text.startswith(_DEFINITIONS):
        start = assigned[-1].end + 1
    elif word in ("return", "assert", "yield", "raise", "del"):
        start = tokens[0].end + 1
    return (text[:start], text[start:end], text[end:]) if start else (text, "", "")


def _openings(text: str) -> list[int]:
    """Return the positions of the brackets of a text that are in no other bracket and not empty."""
    tokens = _tokens(text)
    pairs = [(t, _closing(tokens, n)) for n, t in enumerate(tokens) if t.depth == 0 and t.text in _OPEN]
    return [a.start for a, b in pairs if b is not None and text[a.end : b.start].strip()]


def _opened(text: str, opening: int, first: int, indent: int, last: int) -> Iterator[_Lines]:
    """Yield the ways to break a text in one pair of brackets.

    It begins at the column `first` of a line with the indentation `indent`, and `last` characters follow it.
    """
    tokens = _tokens(text)
    number = next(n for n, t in enumerate(tokens) if t.start == opening)
    closing = _closing(tokens, number)
    assert closing is not None
    head, body, tail = text[: opening + 1], text[opening + 1 : closing.start], text[closing.start :]
    inner = indent + 4
    for rest in _tails(tail, indent, indent, last):
        yield (head, *_padded(_filled(body, inner, inner, 0), inner), *_padded(rest, indent))
    column = first + len(head)
    if tail.startswith(")(") or (column == inner and text.endswith(":")):  # the block would begin at the same column
        return
    for reserve in sorted({1, len(tail) + last}):
        lines = _filled(body, column, column, reserve)
        end = len(lines[-1]) + (column if len(lines) == 1 else 0)
        for rest in _tails(tail, end, indent, last):
            joined = (*lines[:-1], lines[-1] + rest[0], *rest[1:])
            yield (head + joined[0], *joined[1:])


def _padded(lines: _Lines, indent: int) -> _Lines:
    return (" " * indent + lines[0], *lines[1:])


def _tails(tail: str, first: int, indent: int, last: int) -> Iterator[_Lines]:
    """Yield the ways to write the text from a closing bracket on."""
    yield (tail,)
    if first + len(tail) + last > LINE_WIDTH:
        for opening in _openings(tail[1:])[-1:]:
            for lines in _opened(tail[1:], opening, first + 1, indent, last):
                yield (tail[0] + lines[0], *lines[1:])


@lru_cache(maxsize=1024)
def _filled(text: str, first: int, indent: int, last: int) -> _Lines:
    """Return the text between brackets on as few lines as it needs. Lines after the first begin at `indent`."""
    if first + len(text) + last <= LINE_WIDTH:
        return (text,)
    layouts: list[_Lines] = []
    cuts, has_elements = _cuts(text)
    if cuts:
        parts = [text[a:b] for a, b in pairwise([0, *cuts, len(text)])]
        layouts.append(_joined_parts([p for p in parts if p.strip()], first, indent, last))
    if text.startswith('"') and len(_tokens(text)) == 1:
        layouts.append(_split_string(text, first, indent, last))
    if not has_elements:
        for opening in _last(_openings(text), bool(cuts)):
            layouts += _opened(text, opening, first, indent, last)
    return min([*layouts, (text,)], key=lambda lines: _cost(lines, first, last))


def _cuts(text: str) -> tuple[list[int], bool]:
    """Return where to break the text between brackets, and whether it has several elements."""
    tokens = _tokens(text)
    outside = [t for t in tokens if t.depth == 0]
    if any(t.text == "for" for t in outside):
        return [t.start for t in outside if t.text in ("for", "if") and t.start], True
    commas = [t.end for t in outside if t.text == "," and t.end < len(text)]
    if commas:
        return commas, True
    is_named = len(tokens) > 2 and tokens[1].text == "=" and tokens[0].text.isidentifier()
    rest = tokens[2:] if is_named else tokens
    links = _links(rest)
    return [t.start for t in _operators(rest) or (links if len(links) > 1 else [])], False


def _split_string(text: str, first: int, indent: int, last: int) -> _Lines:
    """Return a string as several strings, each on a line of its own."""
    lines, width = [""], LINE_WIDTH - first
    for word in re.findall(r"[^ ]* *", text[1:-1]):
        if lines[-1] and len(lines[-1]) + len(word) + len('""') + last > width:
            lines.append("")
            width = LINE_WIDTH - indent
        lines[-1] += word
    return tuple(f'{" " * indent if number else ""}"{line}"' for number, line in enumerate(lines))


def _joined_parts(parts: Sequence[str], first: int, indent: int, last: int) -> _Lines:
    """Return parts on lines that are filled. The next part after a broken one begins a line."""
    lines, column, is_broken = [""], first, False
    for number, part in enumerate(parts):
        reserve = last if number == len(parts) - 1 else 0
        if lines[-1] and (is_broken or column + len(part.rstrip()) + reserve > LINE_WIDTH):
            lines[-1] = lines[-1].rstrip()
            lines.append("")
            column = indent
        is_first = not lines[-1]
        text = part.lstrip() if is_first else part
        broken = _filled(text.rstrip(), column, indent, reserve)
        is_broken = len(broken) > 1
        pad = " " * indent if is_first and len(lines) > 1 else ""
        lines[-1] += pad + broken[0] + (text[len(text.rstrip()) :] if not is_broken else "")
        lines += broken[1:]
        column = len(lines[-1]) + (first if len(lines) == 1 else 0)
    return tuple(lines)


def _links(tokens: Sequence[_Token]) -> list[_Token]:
    """Return the dots that follow a call in a chain of calls."""
    return [t for b, t in pairwise(tokens) if t.text == "." and t.depth == 0 and b.text in _CLOSE]


def _operators(tokens: Sequence[_Token]) -> list[_Token]:
    """Return the operators of lowest precedence outside all brackets."""
    outside = [(b, t) for b, t in zip([None, *tokens], tokens, strict=False) if t.depth == 0]
    if any(t.text == "lambda" for _, t in outside):
        return []
    for priority in _PRIORITIES:
        positions = [t for b, t in outside if t.text in priority and b is not None and not _is_sign(b)]
        if positions:
            return positions
    return []


def _is_sign(before: _Token) -> bool:
    """Return True if an operator behind this token is unary."""
    text = before.text
    word = text[0].isalpha() or text[0] in "_\"'" or text[0].isdigit()
    return not (text in _CLOSE or (word and not keyword.iskeyword(text)) or text in ("None", "True", "False", "..."))


def _closing(tokens: Sequence[_Token], opening: int) -> _Token | None:
    depth = tokens[opening].depth
    return next((t for t in tokens[opening + 1 :] if t.depth == depth and t.text in _CLOSE), None)
