"""Find the `# fx:` comment of a definition, and the place of each of its characters. Standard library only."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from fx_lsp.model import Span, Target, WrittenInputs
from fx_lsp.specs import FX_COMMENT

_NEWLINE = re.compile(r"\r\n|\r|\n")
_JOINT = ", "


@dataclass(frozen=True)
class CommentLine:
    """Hold one `# fx:` comment: `span` is from its `#` to its last character; `text` starts at the byte `start`."""

    text: str
    span: Span
    start: int


@dataclass(frozen=True)
class FxComment:
    """Hold the `# fx:` lines of one definition, which are parsed as one text."""

    lines: tuple[CommentLine, ...]

    @property
    def text(self) -> str:
        """Return the text for `parse_comment`: the lines joined by commas."""
        return _JOINT.join(line.text for line in self.lines if line.text)

    @property
    def span(self) -> Span:
        """Return the span from the first line's `#` to the last line's end."""
        first, last = self.lines[0].span, self.lines[-1].span
        return Span(first.file, first.line, first.col, last.end_line, last.end_col)

    @property
    def given(self) -> WrittenInputs:
        """Return the comment as inputs of the target."""
        return WrittenInputs(self.text, "comment", self.span)

    def place(self, col: int, end_col: int) -> Span:
        """Return the span in the file of the bytes `col` to `end_col` of `text`; at least one byte long."""
        line, start = self._place(col)
        end_line, end = self._place(max(end_col, col + 1))
        if end_line is not line and end <= end_line.start:
            end_line, end = line, line.span.end_col
        if end_line is line:
            end = max(end, start + 1)
        return Span(line.span.file, line.span.line, start, end_line.span.line, end)

    def _place(self, col: int) -> tuple[CommentLine, int]:
        offset = 0
        line = self.lines[0]
        for line in (line for line in self.lines if line.text):
            size = len(line.text.encode("utf-8", "surrogatepass"))
            if col <= offset + size:
                return line, line.start + max(col - offset, 0)
            offset += size + len(_JOINT)
        return line, line.span.end_col


def fx_comment(text: str, target: Target) -> FxComment | None:
    """Return the `# fx:` comment at a target, or None.

    The comment is directly above the definition or its first decorator, after the `def` line, or first in the body; for
    a module also at its `forward`.
    """
    lines = _lines_of(text)
    comments = _comments_at(target, lines)
    if not comments and target.kind == "module":
        forward = _forward_of(target, lines)
        comments = _comments_at(forward, lines) if forward else []
    return FxComment(tuple(comments)) if comments else None


def _comments_at(target: Target, lines: Sequence[str]) -> list[CommentLine]:
    above: list[CommentLine] = []
    for number in range(target.span.line - 1, 0, -1):
        if not lines[number - 1].lstrip().startswith("#"):
            break
        comment = _comment_on(target.file, number, lines[number - 1])
        if comment:
            above.append(comment)
    return above[::-1] or _header_comments(target, lines)


def _forward_of(target: Target, lines: Sequence[str]) -> Target | None:
    """Return the `forward` of a class as a separate target, from its first decorator on; None without one."""
    for number in range(target.name_span.line + 1, target.span.end_line + 1):
        if re.match(r"\s+def\s+forward\b", lines[number - 1]):
            first = number
            while lines[first - 2].lstrip().startswith("@"):
                first -= 1
            name = Span(target.file, number, 0, number, 0)
            span = Span(target.file, first, 0, target.span.end_line, target.span.end_col)
            return Target(target.file, f"{target.name}.forward", "method", name, span)
    return None


@lru_cache(maxsize=4)
def _lines_of(text: str) -> tuple[str, ...]:
    return tuple(_NEWLINE.split(text))


def _header_comments(target: Target, lines: Sequence[str]) -> list[CommentLine]:
    """Return the `# fx:` comments between `def` and the first statement of the body, ignoring its docstring."""
    start = target.span.line
    source = io.StringIO("\n".join(lines[start - 1 : target.span.end_line]) + "\n")
    comments: list[CommentLine] = []
    depth, header_end, docstring = 0, 0, False
    try:
        for token in tokenize.generate_tokens(source.readline):
            line = token.start[0] + start - 1
            if token.type == tokenize.COMMENT:
                comment = _comment_on(target.file, line, lines[line - 1], token.start[1])
                if comment and (not comments or comments[-1].span.line == line - 1):
                    comments.append(comment)
            elif token.type == tokenize.OP and not header_end:
                depth += (token.string in "([{") - (token.string in ")]}")
                if token.string == ":" and not depth and line >= target.name_span.line:
                    header_end = line
            elif header_end and line > header_end:
                if token.type == tokenize.STRING and not docstring:
                    docstring = True
                elif token.type not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT):
                    break
    except (tokenize.TokenError, SyntaxError):
        pass
    return comments


def _comment_on(file: str, number: int, line: str, start: int | None = None) -> CommentLine | None:
    start = len(line) - len(line.lstrip()) if start is None else start
    match = FX_COMMENT.match(line, start)
    if not match:
        return None
    text = match[1].rstrip(" \t,")
    end = match.start(1) + len(text) if text else len(match[0].rstrip()) + start
    span = Span(file, number, _bytes(line[:start]), number, _bytes(line[:end]))
    return CommentLine(text, span, _bytes(line[: match.start(1)]))


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
