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
from typing import Any

import torch

from fx_lsp.codegen.ir.text import LINE_WIDTH

_OPEN, _CLOSE = "([{", ")]}"
_OPERATORS = ("if else", "or", "and", "in is < > <= >= == !=", "|", "^", "&", "<< >>", "+ -", "* / // % @")
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
    head, value, tail = _parts(text)
    value = f"({value})" if head and len(_pieces(value)) > 1 else value
    lines = [head]
    if head.endswith(" = ") and "," in head and indent + len(head) + (value.find("(") + 1 or len(value)) > LINE_WIDTH:
        targets = head[:-3].removeprefix("(").removesuffix(")")
        lines = list(_filled(f"({targets})", indent, indent, len(f" = {value}{tail}")))
        lines[-1] += " = "
    first, *others = _filled(value, len(lines[-1]) + (indent if len(lines) == 1 else 0), indent, len(tail))
    lines = [*lines[:-1], lines[-1] + first, *others]
    lines = [pad + lines[0], *lines[1:]]
    lines[-1] += tail
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
    return text[:start], text[start:end], text[end:]


@lru_cache(maxsize=4096)
def _filled(text: str, column: int, indent: int, last: int) -> tuple[str, ...]:
    """Return an expression on lines that are filled. The first begins at `column`, and has no indentation; the others
    begin at `indent`, and `last` characters follow the last.
    """
    pieces = _pieces(text)
    if column + len(text) + last <= LINE_WIDTH:
        return (text,)
    if len(pieces) == 1:
        return min(_opened(text, column, indent, last), key=lambda lines: _cost(lines, column, last))
    lines, is_broken = [""], False
    for number, piece in enumerate(pieces):
        reserve = last if number == len(pieces) - 1 else 0
        end = column + len(lines[-1])
        if lines[-1] and (is_broken or end + len(piece.rstrip()) + reserve > LINE_WIDTH):
            lines[-1] = lines[-1].rstrip()
            lines.append(" " * indent)
            column, piece, end = 0, piece.lstrip(), indent
        first, *others = _filled(piece.rstrip(), end, indent, reserve)
        is_broken = bool(others)
        lines[-1] += first + ("" if is_broken else piece[len(piece.rstrip()) :])
        lines += others
        column = 0 if len(lines) > 1 else column
    return tuple(lines)


def _cost(lines: Sequence[str], first: int, last: int) -> tuple[int, int]:
    """Return how many characters of lines do not fit, if the first begins at a column, and the number of lines. A large
    indentation counts as a line.
    """
    lengths = [len(line) for line in lines]
    lengths[0] += first
    lengths[-1] += last
    deep = sum(len(line) - len(line.lstrip()) > LINE_WIDTH // 2 for line in lines[1:])
    return sum(max(0, length - LINE_WIDTH) for length in lengths), len(lines) + deep


def _opened(text: str, column: int, indent: int, last: int) -> Iterator[tuple[str, ...]]:
    """Yield an expression with line breaks in one pair of brackets, the first of a definition, or in a string."""
    yield (text,)
    tokens = _tokens(text)
    if _is_string(text):
        yield _split_string(text, column, indent, last)
    pairs = [(t, _closing(tokens, n)) for n, t in enumerate(tokens) if t.depth == 0 and t.text in _OPEN]
    filled = [(t.end, end.start) for t, end in pairs if end is not None and text[t.end : end.start].strip()]
    for start, end in filled[:1] if text.startswith(_DEFINITIONS) else filled[:-3:-1]:
        head, body, tail = text[:start], text[start:end], text[end:]
        inside, inner = column + start, indent + 4
        lines = _filled(body, inner, inner, 0)
        yield (head, " " * inner + lines[0], *lines[1:], " " * indent + tail)
        if not (tail.startswith(")(") or (inside == inner and text.endswith(":"))):
            first, *others = _filled(body, inside, inside, len(tail) + last)
            lines = (head + first, *others)
            yield (*lines[:-1], lines[-1] + tail)


def _pieces(text: str) -> list[str]:
    """Return the parts of an expression that may be on lines of their own: elements, operands or links of a chain."""
    tokens = _tokens(text)
    outside = _outside(tokens)
    if any(t.text == "for" for t in outside):
        cuts = [t.start for t in outside if t.text in ("for", "if") and t.start]
    else:
        cuts = [t.end for t in outside if t.text == "," and t.end < len(text)] or _operands(tokens)
    return [text[a:b] for a, b in pairwise([0, *cuts, len(text)]) if text[a:b].strip()]


def _outside(tokens: Sequence[_Token]) -> list[_Token]:
    """Return the tokens that are in no bracket, and not among the parameters of a lambda."""
    outside, is_lambda = list[_Token](), False
    for token in (t for t in tokens if t.depth == 0):
        is_lambda = (is_lambda or token.text == "lambda") and token.text != ":"
        outside += [] if is_lambda else [token]
    return outside


def _operands(tokens: Sequence[_Token]) -> list[int]:
    """Return where to break an expression before its operators of lowest precedence, or before the links of a chain."""
    if any(t.text == "lambda" for t in tokens):
        return []
    is_named = len(tokens) > 2 and tokens[1].text == "=" and tokens[0].text.isidentifier()
    pairs = [(b, t) for b, t in pairwise(tokens[2:] if is_named else tokens) if t.depth == 0]
    links = [t.start for b, t in pairs if t.text == "." and b.text in _CLOSE]
    for operators in map(str.split, _OPERATORS):
        places = [t.start for b, t in pairs if t.text in operators and not _is_sign(b)]
        if places:
            return places
    return links if len(links) > 1 else []


def _is_string(text: str) -> bool:
    return text.startswith('"') and len(_tokens(text)) == 1


def _split_string(text: str, first: int, indent: int, last: int) -> tuple[str, ...]:
    """Return a string as several strings, each on a line of its own."""
    lines, width = [""], LINE_WIDTH - first
    for word in re.findall(r"[^ ]* *", text[1:-1]):
        if lines[-1] and len(lines[-1]) + len(word) + len('""') + last > width:
            lines.append("")
            width = LINE_WIDTH - indent
        lines[-1] += word
    return tuple(f'{" " * indent if number else ""}"{line}"' for number, line in enumerate(lines))


def _is_sign(before: _Token) -> bool:
    """Return True if an operator behind this token is unary."""
    text = before.text
    word = text[0].isalpha() or text[0] in "_\"'" or text[0].isdigit()
    return not (text in _CLOSE or (word and not keyword.iskeyword(text)) or text in ("None", "True", "False", "..."))


def _closing(tokens: Sequence[_Token], opening: int) -> _Token | None:
    depth = tokens[opening].depth
    return next((t for t in tokens[opening + 1 :] if t.depth == depth and t.text in _CLOSE), None)
