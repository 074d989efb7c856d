"""Write the traced inputs of a target as its `# fx:` comment."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from fx_lsp.comments import FxComment, fx_comment
from fx_lsp.features.source.parameters import signature_of
from fx_lsp.model import PLAIN_CONTEXT, CallContext, InputSpec, Outcome, Target, Trace
from fx_lsp.specs import DETACHED, MODE, MODES, Comment, Items, comment_items, names_used, parse_comment
from fx_lsp.syntax import parse_expression, tree_of

WIDTH = 100
_ENUM = re.compile(r"<((?:\w+\.)+\w+): .*>")
_FLOATS = {"inf": "float('inf')", "-inf": "-float('inf')", "nan": "float('nan')"}
_INIT = "init."
_LINE_ENDS = re.compile(rb"(?<=\n)|(?<=\r)(?!\n)")


@dataclass(frozen=True)
class TextChange:
    """Replace the text from (`line`, `col`) to (`end_line`, `end_col`), counted as in `Span`."""

    line: int
    col: int
    end_line: int
    end_col: int
    text: str

    def applied(self, text: str) -> str:
        """Return a text with this change."""
        rows = _LINE_ENDS.split(text.encode(errors="replace"))
        head, tail = rows[self.line - 1][: self.col], rows[self.end_line - 1][self.end_col :]
        rows[self.line - 1 : self.end_line] = [head + self.text.encode() + tail]
        return b"".join(rows).decode()

    def keeps_program(self, text: str) -> bool:
        """Return True if the change is only one of comments and white space."""
        before, after = tree_of(text), tree_of(self.applied(text))
        return before is not None and after is not None and ast.dump(before) == ast.dump(after)


@dataclass(frozen=True)
class Pin:
    """Offer to write a comment: its title in the editor, and its edit."""

    title: str
    edits: tuple[TextChange, ...]
    mends: bool
    """True for a target that could not be traced."""


def pin(text: str, target: Target, outcome: Outcome, line: int) -> Pin | None:
    """Return the offer at the cursor `line`, on a target's header or comment; None with nothing to write.

    Inputs from defaults are omitted, and so are values that the syntax of comments cannot express.
    """
    comment = fx_comment(text, target)
    signature = signature_of(text, target)
    headers = list(signature.headers) if signature else []
    if comment is not None:
        headers.append((comment.span.line, comment.span.end_line))
    if not any(first <= line <= last for first, last in headers):
        return None
    if all(item.source in ("comment", "default") for item in outcome.inputs):
        return None
    context = outcome.context if isinstance(outcome, Trace) else PLAIN_CONTEXT
    items = comment_text(text, outcome.inputs, comment, context)
    if not items or (comment is not None and ", ".join(items) == comment.text):
        return None
    traced = isinstance(outcome, Trace)
    title = "Pin these inputs as a # fx: comment" if traced else "Write a # fx: comment with the inputs that were tried"
    return Pin(title, tuple(_edits(text, target, comment, items)), not traced)


def comment_text(
    text: str, inputs: Iterable[InputSpec], comment: FxComment | None = None, context: CallContext = PLAIN_CONTEXT
) -> list[str]:
    """Return the items of a comment with these inputs, and the context; items of `comment` stay as they are."""
    items = comment_items(comment.text) if comment is not None else Items()
    kept = {(_INIT if item.in_init else "") + item.name: item.value for item in items.items}
    seen = [i for i in inputs if i.source != "default"]
    values = {**kept, **written_values(text, [i for i in seen if i.name != MODE]), **kept}
    constructed = [f"{name[len(_INIT) :]}={value}" for name, value in values.items() if name.startswith(_INIT)]
    called = [f"{name}={value}" for name, value in values.items() if not name.startswith(_INIT)]
    init = [f"init({', '.join(constructed)})"] if constructed else []
    return [*init, *_mode(items, seen), *(items.context or context.written), *called]


def _mode(written: Items, inputs: list[InputSpec]) -> list[str]:
    """Return `eval()` or `train()`, from the comment or from the trace."""
    if written.mode is not None:
        return [f"{written.mode.name}()"]
    traced = [i.spec for i in inputs if i.name == MODE]
    return [f"{word}()" for word, training in MODES.items() if repr(training) in traced]


def written_values(text: str, inputs: Iterable[InputSpec]) -> dict[str, str]:
    """Return the comment's text of each parameter, in order (`init.dim` for the constructor's), if it can be
    written.
    """
    values = {root: _value(text, group) for root, group in _by_root(inputs).items()}
    return {root: value for root, value in values.items() if value is not None}


def _by_root(inputs: Iterable[InputSpec]) -> dict[str, list[InputSpec]]:
    groups: dict[str, list[InputSpec]] = {}
    for item in inputs:
        prefix = _INIT if item.name.startswith(_INIT) else ""
        root = prefix + re.split(r"[\[.]", item.name[len(prefix) :], maxsplit=1)[0]
        groups.setdefault(root, []).append(item)
    return groups


def _value(text: str, group: list[InputSpec]) -> str | None:
    """Return one argument as source: a spec, a literal, or a container assembled from its elements; None if
    impossible.
    """
    values: dict[tuple[Any, ...], str] = {}
    for item in group:
        path, spec = _path(item.name), spec_text(text, item.spec)
        if path is None or spec is None:
            return None
        values[path] = spec + DETACHED if item.requires_grad is False else spec
    return _assemble(values)


def _assemble(values: dict[tuple[Any, ...], str]) -> str | None:
    """Return the source of a container from values by their paths; None unless it is a tuple or a dict with text keys.

    Keys that count from 0 are a tuple's: the name of an input does not distinguish it from a list.
    """
    if () in values:
        return values[()] if len(values) == 1 else None
    parts: dict[Any, dict[tuple[Any, ...], str]] = {}
    for (key, *rest), value in values.items():
        parts.setdefault(key, {})[tuple(rest)] = value
    items = {key: _assemble(inside) for key, inside in parts.items()}
    if any(item is None for item in items.values()):
        return None
    if list(items) == list(range(len(items))):
        return f"({', '.join(map(str, items.values()))}{',' if len(items) == 1 else ''})"
    if all(isinstance(key, str) for key in items):
        return "{" + ", ".join(f"{key!r}: {item}" for key, item in items.items()) + "}"
    return None


def _path(name: str) -> tuple[Any, ...] | None:
    """Return the keys after a parameter's name: `(0, 'a')` for `xs[0]['a']`; None if they are not literals."""
    keys: list[Any] = []
    try:
        node = parse_expression(name.removeprefix(_INIT))
        while isinstance(node, ast.Subscript):
            keys.append(ast.literal_eval(node.slice))
            node = node.value
        hash(tuple(keys))
    except (SyntaxError, ValueError, TypeError):
        return None
    return tuple(keys[::-1]) if isinstance(node, ast.Name) else None


def spec_text(text: str, spec: str) -> str | None:
    """Return a spec in the syntax of comments in the file `text`; None if the syntax cannot express it."""
    member = _ENUM.fullmatch(spec)
    spec = member[1] if member else _FLOATS.get(spec, " ".join(spec.split()) if "\n" in spec else spec)
    parsed = parse_comment(f"value={spec}")
    if not isinstance(parsed, Comment) or list(parsed.args) != ["value"] or parsed.init is not None:
        return None
    return spec if names_used(parsed) <= _bound(text) else None


@lru_cache(maxsize=4)
def _bound(text: str) -> frozenset[str]:
    """Return the names available to an expression in a module with this text: its own, imported ones, builtins."""
    tree = tree_of(text)
    pending: list[ast.AST] = [] if tree is None else [*tree.body]
    names = set(dir(builtins))
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
            continue
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        pending.extend(ast.iter_child_nodes(node))
    return frozenset(names)


def _edits(text: str, target: Target, comment: FxComment | None, items: list[str]) -> Iterator[TextChange]:
    lines = re.split(r"\r\n|\r|\n", text)
    newline = "\r\n" if "\r\n" in text else "\n"
    if comment is not None:
        first, *others = comment.lines
        head = lines[first.span.line - 1].encode()[: first.span.col].decode()
        if not head.strip():
            yield _replace(first.span.line, lines, newline.join(_wrap(head, items)))
            yield from (TextChange(o.span.line, 0, o.span.line + 1, 0, "") for o in others)
            return
        if len(wrapped := _wrap(head, items)) == 1:
            yield TextChange(
                first.span.line, first.span.col, first.span.line, first.span.end_col, wrapped[0][len(head) :]
            )
            return
        yield _replace(first.span.line, lines, head.rstrip())
    above = target.span.line
    code = lines[above - 1]
    indent = code[: len(code) - len(code.lstrip())]
    yield TextChange(above, 0, above, 0, "".join(line + newline for line in _wrap(indent, items)))


def _replace(line: int, lines: list[str], text: str) -> TextChange:
    return TextChange(line, 0, line, len(lines[line - 1].encode()), text)


def _wrap(indent: str, items: list[str]) -> list[str]:
    """Return the comment's lines: broken between items, and inside of `init(…)` if that alone is too long."""
    pieces: list[str] = []
    for item in items:
        fits = len(indent) + len(item) + 6 <= WIDTH or not item.startswith("init(")
        pieces += [item] if fits else _arguments(item)
    lines: list[str] = []
    for piece in pieces:
        if lines and len(f"{lines[-1]}, {piece}") <= WIDTH:
            lines[-1] += f", {piece}"
        else:
            lines.append(f"{indent}# fx: {piece}")
    return lines


def _arguments(init: str) -> list[str]:
    """Return `["init(a=1", "b=2)"]` for `init(a=1, b=2)`; the comment's parser joins lines by commas."""
    inside = [f"{item.name}={item.value}" for item in comment_items(init).items]
    return [("init(" if n == 0 else "") + text + (")" if n == len(inside) - 1 else "") for n, text in enumerate(inside)]
