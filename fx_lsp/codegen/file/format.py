"""Format Python: write values as literals, and break long statements over lines."""

from __future__ import annotations

import io
import keyword
import math
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from fx_lsp.codegen.ir.text import LINE_WIDTH

_OPEN, _CLOSE = "([{", ")]}"
_OPERATORS = ("for", "if else", "or", "and", "in is < > <= >= == !=", "|", "^", "&", "<< >>", "+ -", "* / // % @")
"""The operators that a line may be broken before, lowest precedence first."""
_RANKS = {operator: rank for rank, operators in enumerate(_OPERATORS, 1) for operator in operators.split()}
_CONSTANTS = ("None", "True", "False")
FAR = LINE_WIDTH * 5 // 8
"""The column from which on a bracket is far to the right."""


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


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int
    depth: int


def _tokens(text: str) -> tuple[_Token, ...]:
    """Return the tokens of a text on one line, each with the number of brackets around it."""
    tokens: list[_Token] = []
    depth = 0
    try:
        for token in _source_tokens(text):
            is_bracket = token.type == tokenize.OP
            depth -= is_bracket and token.string in _CLOSE
            if token.string.strip():
                tokens.append(_Token(token.string, token.start[1], token.end[1], depth))
            depth += is_bracket and token.string in _OPEN
    except tokenize.TokenError:  # a header without its body
        pass
    return tuple(tokens)


def long_lines(lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the places of statements that are on one line and too long for it, and their lines."""
    first: tokenize.TokenInfo | None = None
    ignored = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT)
    for token in _source_tokens("\n".join(lines) + "\n"):
        if token.type == tokenize.NEWLINE:
            if first is not None and first.start[0] == token.start[0] and token.start[1] > LINE_WIDTH:
                yield token.start[0] - 1, break_lines(first.line[first.start[1] :].rstrip(), first.start[1])
            first = None
        elif first is None and token.type not in ignored:
            first = token


def break_lines(text: str, indent: int) -> list[str]:
    """Return a statement on lines that are filled. Lines in brackets begin behind the bracket, unless it is far to the
    right.
    """
    if indent + len(text) <= LINE_WIDTH or "  #" in text:
        return [" " * indent + text]
    text = _bracketed(text, indent)
    tokens, lines, start, column, opened = _tokens(text), list[str](), 0, indent, list[int]()
    while column + len(text) - start > LINE_WIDTH:
        breaks = list(_breaks(tokens, start, column, opened))
        if not breaks:
            break
        fitting = [each for each in breaks if each.end - start + column <= LINE_WIDTH] or breaks[:1]
        best = min(fitting, key=lambda each: each.cost)
        lines.append(" " * column + text[start : best.end])
        start, column, opened = best.start, best.columns[-1], list(best.columns)
    return [*lines, " " * column + text[start:]]


@dataclass(frozen=True)
class _Break:
    """A place for a line break, behind `end` and before `start`, with the `columns` of the brackets around it. The
    place of the least `cost` is the best.
    """

    end: int
    start: int
    columns: tuple[int, ...]
    cost: tuple[bool, int, int, int]


def _breaks(tokens: Sequence[_Token], start: int, column: int, opened: Sequence[int]) -> Iterator[_Break]:
    """Yield the places where a line that begins at `start` and `column`, in brackets at `opened`, may end."""
    columns = list(opened)
    for before, token in pairwise(tokens):
        if token.start <= start:
            continue
        if before.start >= start and before.text in _OPEN:
            columns.append(column + before.end - start)
        if before.start >= start and before.text in _CLOSE:
            columns.pop()
        rank = _RANKS.get(token.text) if _ends_operand(before) else None
        if before.text == ",":
            rank = 0
        if not columns or token.text in _CLOSE:
            continue
        if before.text in _OPEN:
            yield _Break(before.end, token.start, (*columns[:-1], column + 4), (False, len(columns), len(_RANKS), 0))
        elif rank is not None:
            cost = (columns[-1] > FAR, len(columns), rank, -token.start)
            yield _Break(before.end, token.start, tuple(columns), cost)


def _ends_operand(token: _Token) -> bool:
    """Return True if an operator behind this token has it as its left side."""
    word = token.text[0].isalnum() or token.text[0] in "_\"'."
    return token.text in _CLOSE or (word and (not keyword.iskeyword(token.text) or token.text in _CONSTANTS))


def _bracketed(text: str, indent: int) -> str:
    """Return a statement with brackets around its value, and around its targets, if these have to be broken."""
    tokens = [token for token in _tokens(text) if token.depth == 0]
    first = tokens[0]
    assigned = [t for t in tokens if t.text.endswith("=") and t.text not in ("==", "!=", "<=", ">=")]
    start = first.end + 1 if first.text in ("return", "assert", "raise", "if", "while", "elif") else 0
    if assigned and first.text not in ("def", "class", "@"):
        start = assigned[-1].end + 1
    end = len(text) - text.endswith(":")
    inside = [(b, t) for b, t in pairwise(tokens) if b.start >= start]
    if start and any(b.text == "," or (t.text in _RANKS and _ends_operand(b)) for b, t in inside):
        text = f"{text[:start]}({text[start:end]}){text[end:]}"
    if start > LINE_WIDTH // 2 and "," in text[:start]:
        targets = text[: assigned[-1].start].rstrip()
        text = f"({targets}){text[len(targets) :]}" if targets[0] != "(" else text
    return text
