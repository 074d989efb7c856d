"""Handle one target of the command line: find it, open it in an engine, and print its documents."""

from __future__ import annotations

import argparse
import io
import sys
import tokenize
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fx_lsp import files
from fx_lsp.commands.options import engine_settings
from fx_lsp.commands.places import line_name
from fx_lsp.commands.sources import read_source
from fx_lsp.errors import TargetError
from fx_lsp.features.documents.document import Document
from fx_lsp.messages.places import with_places
from fx_lsp.model import Failure, Span, Stage, Work
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.source.project import project_root
from fx_lsp.tracing.source.targets import discover, names_like


@dataclass(frozen=True)
class Chosen:
    """Hold the target of a command, with its file's text on disk."""

    file: str
    name: str
    text: str


def read_target(target: str) -> Chosen:
    """Return the target `path/to/file.py::name`. Raises TargetError if it names no file."""
    path, separator, name = target.rpartition("::")
    if not separator or not name:
        raise TargetError(f"`{target}` is not a target: write it as path/to/file.py::function{_targets_in(target)}")
    file = Path(path).resolve()
    try:
        return Chosen(str(file), name, read_source(str(file)))
    except (OSError, SyntaxError, ValueError) as error:
        raise TargetError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _targets_in(path: str) -> str:
    """Return a sentence that lists the targets of a file; "" if no file can be read there."""
    file = Path(path.rstrip(":")).resolve()
    try:
        names = [target.name for target in discover(str(file), read_source(str(file))).targets]
    except (OSError, SyntaxError, ValueError):
        return ""
    return f". {names_like('', names)}"


@asynccontextmanager
async def opened(arguments: argparse.Namespace, chosen: Chosen) -> AsyncGenerator[Engine, None]:
    """Open the target's file in an engine that only traces on request."""
    engine = Engine(engine_settings(arguments), lambda file: None, lambda status: None)
    try:
        engine.open(chosen.file, chosen.text, (project_root(chosen.file),))
        yield engine
    finally:
        await engine.shutdown()


async def stages_of(engine: Engine, chosen: Chosen, names: Iterable[str], work: Work) -> list[Stage] | Failure:
    """Return the stages of those names, in order; the failure if one is unavailable."""
    stages: list[Stage] = []
    for name in names:
        stage = await engine.stage(chosen.file, chosen.name, name, work)
        if isinstance(stage, Failure):
            return stage
        stages.append(stage)
    return stages


def print_document(document: Document) -> None:
    """Print a document, in colours on a terminal."""
    print(highlight(document.text) if sys.stdout.isatty() else document.text, end="")


def source_line(span: Span, texts: dict[str, str]) -> str | None:
    """Return the first line of a span; `texts` caches the files."""
    lines = source_lines(texts)(span.file)
    return lines[span.line - 1] if span.line <= len(lines) else None


def source_lines(texts: dict[str, str]) -> Callable[[str], Sequence[str]]:
    """Return a function that returns the lines of a file, none if it cannot be read; `texts` caches the files."""

    def lines(file: str) -> Sequence[str]:
        if file not in texts:
            try:
                texts[file] = files.read_python_leniently(file)
            except OSError:
                texts[file] = ""
        return texts[file].splitlines()

    return lines


def failure_text(failure: Failure, chosen: Chosen, done: str = "traced") -> str:
    """Return why the target was not traced, or not `done`, with the place and the remedy."""
    lines, failure = chosen.text.splitlines(), with_places(failure, chosen.file, line_name)
    parts = [f"{chosen.name} was not {done}: {failure.message}"]
    if failure.span is not None:
        parts.append(f"  {failure.span.file}:{failure.span.line}")
        if failure.span.line <= len(lines):
            parts.append(f"    {lines[failure.span.line - 1].strip()}")
    if failure.hint:
        parts.append(failure.hint)
    return "\n".join(parts)


def highlight(text: str) -> str:
    """Return Python text with ANSI colours for a terminal: comments dim, operations bold, specs in colour."""
    painted = [list(line) for line in text.splitlines(keepends=True)]
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string.strip()]
    for before, token, after in zip([None, *tokens[:-1]], tokens, [*tokens[1:], None], strict=True):
        style = _style(token, before.string if before else "", after.string if after else "")
        if style:
            row, start = token.start
            painted[row - 1][start] = f"\x1b[{style}m{painted[row - 1][start]}"
            painted[row - 1][token.end[1] - 1] += "\x1b[0m"
    return "".join("".join(line) for line in painted)


def _style(token: tokenize.TokenInfo, before: str, after: str) -> str:
    if token.type == tokenize.COMMENT:
        return "2"
    if token.type == tokenize.NUMBER:
        return "33"
    if token.string in ("def", "return"):
        return "35"
    if token.type == tokenize.NAME and after == "[" and before in (":", "(", ","):
        return "36"
    return "1" if token.type == tokenize.NAME and before == "." else ""
