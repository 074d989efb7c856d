"""Format Python as ruff does: write values as literals, and break long statements over lines."""

from __future__ import annotations

import ast
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
            elif before.string not in _OPEN:
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
    """Return a statement on as many lines as it needs."""
    pad = " " * indent
    lines = [pad + text] if indent + len(text) <= LINE_WIDTH else [line.rstrip() for line in _statement(text, pad)]
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


def _tokens(text: str) -> list[_Token]:
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
    return tokens


def _statement(text: str, pad: str) -> list[str]:
    tokens = _tokens(text)
    if text.startswith(("def ", "class ", "async def ")):
        return _brackets(text, pad, first=True)
    assign = [t for t in tokens if t.depth == 0 and t.text.endswith("=") and t.text not in ("==", "!=", "<=", ">=")]
    head, tail = "", ""
    if assign:
        head = text[: assign[-1].end] + " "
    elif tokens[0].text in ("return", "assert", "yield", "raise", "del"):
        head = tokens[0].text + " "
    elif tokens[0].text in ("if", "while", "elif", "with") and text.endswith(":"):
        head, tail = tokens[0].text + " ", ":"
    elif tokens[0].text == "for" and text.endswith(":"):
        within = next(t for t in tokens if t.text == "in" and t.depth == 0)
        head, tail = text[: within.end] + " ", ":"
    if head.startswith("with ") or text.startswith(("import ", "from ", "@")):
        return _brackets(text, pad)
    return _value(head, text[len(head) : len(text) - len(tail)], tail, pad)


def _value(head: str, value: str, tail: str, pad: str) -> list[str]:
    """Return an expression behind `head`, with its last bracket opened or in brackets of its own."""
    tokens, inner = _tokens(value), pad + "    "
    if len(pad) + len(head) > LINE_WIDTH - 2 and head.endswith("= ") and "," in head:
        targets = _elements(head[:-3].strip("() "), inner)
        last = f"{pad}) = {value}{tail}"
        first, *rest = [last] if len(last) <= LINE_WIDTH else _brackets(value + tail, pad)
        return [f"{pad}(", *targets, first if not rest else f"{pad}) = {first.lstrip()}", *rest]
    if any(t.depth == 0 and t.text == "," for t in tokens):
        if head.startswith("return"):
            return [f"{pad}{head}(", *_elements(value, inner), f"{pad}){tail}"]
        return _brackets(head + value + tail, pad)
    wrapped = [f"{pad}{head}(", *_expression(value, inner), f"{pad}){tail}"]
    return _opened_or_wrapped(head, value, tail, pad, wrapped)


def _opened_or_wrapped(head: str, value: str, tail: str, pad: str, wrapped: list[str]) -> list[str]:
    """Return an expression with its last bracket opened, or `wrapped` in brackets of its own."""
    tokens = _tokens(value)
    operators = _operators(tokens)
    is_long = len(pad) + 4 + len(value) > LINE_WIDTH
    if not operators and len(_links(tokens)) > 1 and head:
        return wrapped
    if _may_open_last_bracket(tokens, value, len(operators), wrapped):
        lines = _brackets(head + value + tail, pad)
        if len(lines) > 1 and all(len(line) <= LINE_WIDTH for line in lines):
            return lines
        if not operators and head and len(lines[0]) > LINE_WIDTH and not head.startswith("return"):
            return wrapped
        if not operators and (is_long or not head):
            return lines
    if not head or (not operators and is_long):
        return _brackets(head + value + tail, pad)
    return wrapped


def _may_open_last_bracket(tokens: Sequence[_Token], value: str, operators: int, wrapped: Sequence[str]) -> bool:
    """Return True if the last bracket of an expression may be opened: its only one, or one behind an operator."""
    ends = bool(tokens) and tokens[-1].text in _CLOSE
    if operators == 0:
        return ends
    called = ends and tokens[-1].text == ")" and value[-2:] != "()"
    return operators == 1 and (called or (tokens[0].text in _OPEN and len(wrapped) > 3))


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


def _expression(text: str, pad: str, comma: str = "") -> list[str]:
    """Return an expression inside brackets, broken over lines."""
    if len(pad) + len(text) + len(comma) <= LINE_WIDTH:
        return [pad + text + comma]
    tokens = _tokens(text)
    named = len(tokens) > 2 and tokens[1].text == "=" and tokens[0].text.isidentifier()
    start = tokens[1].end if named else 0
    rest = [t for t in tokens if t.start >= start]
    operators = _operators(rest)
    if not operators and len(_links(rest)) > 1 and not named:
        operators = _links(rest)
    if not operators:
        return _brackets(text + comma, pad)
    cuts = [o.start for o in operators]
    parts = [text[a:b].rstrip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    lines: list[str] = []
    for number, part in enumerate(parts):
        ending = comma if number == len(parts) - 1 else ""
        if len(pad) + len(part) + len(ending) <= LINE_WIDTH:
            lines.append(pad + part + ending)
        else:
            lines += _operand(part, pad, ending)
    return lines


def _operand(text: str, pad: str, comma: str) -> list[str]:
    """Return one part of a chain of operators. The part begins with its operator."""
    tokens = _tokens(text)
    inner = _operators(tokens[1:]) if _is_sign(tokens[0]) else _operators(tokens)
    if not inner:
        return _brackets(text + comma, pad)
    cuts = [o.start for o in inner]
    parts = [text[a:b].rstrip() for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    lines: list[str] = []
    for number, part in enumerate(parts):
        ending = comma if number == len(parts) - 1 else ""
        fits = len(pad) + len(part) + len(ending) <= LINE_WIDTH
        lines += [pad + part + ending] if fits else _brackets(part + ending, pad)
    return lines


def _brackets(text: str, pad: str, first: bool = False) -> list[str]:
    """Return a text with its last pair of brackets opened, or its first."""
    tokens = _tokens(text)
    pairs = [(t, _closing(tokens, n)) for n, t in enumerate(tokens) if t.depth == 0 and t.text in _OPEN]
    pairs = [(a, b) for a, b in pairs if b is not None and text[a.end : b.start].strip()]
    if not pairs:
        return [pad + text]
    opening, closing = pairs[0] if first else _pair_to_open(pairs, pad)
    assert closing is not None
    head, body, tail = text[: opening.end], text[opening.end : closing.start], text[closing.start :]
    inner = pad + "    "
    called = _is_called(text, opening.start)
    if len(inner) + len(body) <= LINE_WIDTH and (called or "," not in [t.text for t in _tokens(body) if t.depth == 0]):
        lines = [inner + body + ("," if first and text.startswith("def ") and "," not in body else "")]
    else:
        lines = _elements(body, inner)
    ending = [pad + tail] if len(pad) + len(tail) <= LINE_WIDTH else _brackets_of_tail(tail, pad)
    return [pad + head, *lines, *ending]


def _is_called(text: str, opening: int) -> bool:
    """Return True if a bracket opens a call or an index."""
    before = text[opening - 1] if opening > 0 else ""
    follows = bool(before) and (before.isalnum() or before in "_)]\"'")
    return follows and not keyword.iskeyword(_word_before(text, opening))


def _pair_to_open(pairs: Sequence[tuple[_Token, _Token]], pad: str) -> tuple[_Token, _Token]:
    """Return the last pair of brackets that opens within the line width."""
    opening, closing = pairs[-1]
    for a, b in reversed(pairs[:-1]):
        if len(pad) + opening.end <= LINE_WIDTH:
            break
        opening, closing = a, b
    return opening, closing


def _brackets_of_tail(tail: str, pad: str) -> list[str]:
    """Return the text from a closing bracket on, with its last brackets opened."""
    rest = _brackets(tail[1:], pad)
    return [pad + tail[0] + rest[0][len(pad) :], *rest[1:]]


def _word_before(text: str, end: int) -> str:
    start = end
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    return text[start:end]


def _closing(tokens: Sequence[_Token], opening: int) -> _Token | None:
    depth = tokens[opening].depth
    return next((t for t in tokens[opening + 1 :] if t.depth == depth and t.text in _CLOSE), None)


def _elements(body: str, pad: str) -> list[str]:
    """Return the text between brackets with one element on each line."""
    tokens = _tokens(body)
    commas = [t for t in tokens if t.depth == 0 and t.text == ","]
    comprehension = any(t.depth == 0 and t.text == "for" for t in tokens)
    if not commas or comprehension:
        return _clauses(body, pad) if comprehension else _expression(body.rstrip(","), pad)
    cuts = [0, *(c.end for c in commas), len(body)]
    parts = [body[a:b].strip().removesuffix(",") for a, b in pairwise(cuts)]
    return [line for part in parts if part for line in _expression(part, pad, ",")]


def _clauses(body: str, pad: str) -> list[str]:
    cuts = [t.start for t in _tokens(body) if t.depth == 0 and t.text in ("for", "if")]
    parts = [body[a:b].strip() for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    return [line for part in parts for line in _expression(part, pad)]
