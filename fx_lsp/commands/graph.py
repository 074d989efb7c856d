"""`fx-lsp graph TARGET`: one graph of a function or module, or all that is known of it as JSON.

Exit codes: 0 traced, 1 not traced, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import sys
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fx_lsp import wire
from fx_lsp.commands.options import add_tracing_options, cache_path
from fx_lsp.commands.sources import project_root, read_source
from fx_lsp.errors import TargetError
from fx_lsp.features.documents import render_stage
from fx_lsp.model import Failure, Node, Outcome, Span, Stage, Trace
from fx_lsp.tracing.engine import Engine, EngineSettings

STAGES = ("forward", "backward", "joint", "inference")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `fx-lsp graph`."""
    parser.add_argument("target", metavar="TARGET", help="path/to/file.py::function, ::Class or ::Class.method")
    parser.add_argument(
        "--stage", choices=STAGES, help="which graph (default: forward, or inference where there is no backward)"
    )
    parser.add_argument("--full", action="store_true", help="print every node, also where loops and layers repeat")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Trace the target and print what was asked for. Raises TargetError for a target that names no file."""
    return asyncio.run(_graph(arguments))


async def _graph(arguments: argparse.Namespace) -> int:
    file, name, text = _read_target(arguments.target)
    settings = EngineSettings(
        interpreter=arguments.python,
        cache_path=cache_path(arguments),
        trace_on_open=False,
    )
    engine = Engine(settings, lambda file: None, lambda status: None)
    try:
        engine.open(file, text, (project_root(file),))
        outcome = await engine.outcome(file, name)
        stages: list[Stage] = []
        if isinstance(outcome, Trace):
            for info in outcome.stages:
                stage = await engine.stage(file, name, info.name)
                if isinstance(stage, Failure):
                    outcome = stage
                    break
                stages.append(stage)
    finally:
        await engine.shutdown()
    if arguments.json:
        print(json.dumps(to_contract(arguments.target, outcome, stages), indent=2))
    elif isinstance(outcome, Failure):
        print(_failure_text(outcome, name, text), file=sys.stderr)
    else:
        return _print_stage(outcome, stages, arguments.stage, arguments.full, {file: text})
    return 1 if isinstance(outcome, Failure) else 0


def _read_target(target: str) -> tuple[str, str, str]:
    path, separator, name = target.rpartition("::")
    if not separator or not name:
        raise TargetError(f"`{target}` names no function: write it as path/to/file.py::function")
    file = Path(path).resolve()
    try:
        return str(file), name, read_source(file)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        raise TargetError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def _print_stage(trace: Trace, stages: list[Stage], wanted: str | None, full: bool, texts: dict[str, str]) -> int:
    known = {s.name: s for s in stages}
    name = wanted or ("forward" if "forward" in known else "inference")
    if name not in known:
        print(f"fx-lsp: {trace.target} has no {name} graph; it has {', '.join(known)}", file=sys.stderr)
        return 1
    document = render_stage(trace, known[name], lambda span: _source_line(span, texts), full)
    print(highlight(document.text) if sys.stdout.isatty() else document.text, end="")
    return 0


def _source_line(span: Span, texts: dict[str, str]) -> str | None:
    if span.file not in texts:
        try:
            texts[span.file] = Path(span.file).read_text(encoding="utf-8", errors="replace")
        except OSError:
            texts[span.file] = ""
    lines = texts[span.file].splitlines()
    return lines[span.line - 1] if span.line <= len(lines) else None


def _failure_text(failure: Failure, name: str, text: str) -> str:
    lines = text.splitlines()
    parts = [f"{name} was not traced: {failure.message}"]
    if failure.span is not None:
        parts.append(f"  {failure.span.file}:{failure.span.line}")
        if failure.span.line <= len(lines):
            parts.append(f"    {lines[failure.span.line - 1].strip()}")
    if failure.hint:
        parts.append(failure.hint)
    return "\n".join(parts)


def to_contract(target: str, outcome: Outcome, stages: Sequence[Stage]) -> dict[str, Any]:
    """The JSON that scripts rely on."""
    if isinstance(outcome, Failure):
        fields = ("kind", "message", "span", "hint")
        return {"target": target, "failure": {k: wire.to_json(getattr(outcome, k)) for k in fields}}
    return {
        "target": target,
        "inputs": [{"name": i.name, "spec": i.spec, "source": i.source} for i in outcome.inputs],
        "stages": [{"name": s.name, "nodes": [_node(n) for n in s.nodes]} for s in stages],
        "saved": [{k: wire.to_json(getattr(s, k)) for k in ("name", "spec", "bytes", "span")} for s in outcome.saved],
        "seconds": outcome.seconds,
    }


def _node(node: Node) -> dict[str, Any]:
    fields = ("name", "op", "target", "args", "spec", "span", "users")
    return {k: wire.to_json(getattr(node, k)) for k in fields}


def highlight(text: str) -> str:
    """Python text with ANSI colours for a terminal: comments dim, operations bold, specs in colour."""
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
