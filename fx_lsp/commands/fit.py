"""`fx-lsp fit [PATH…]`: the peak memory of training programs, without a GPU.

Exit codes: 0 if there is a peak for each training program, 1 if not, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from fx_lsp.commands.options import add_tracing_options, engine_settings
from fx_lsp.commands.places import place_text
from fx_lsp.commands.sources import Source, find_sources, read_source, shown_path
from fx_lsp.features.costs.fit import FACTOR, WORKSPACES, batch_lines, fit_data, fit_lines
from fx_lsp.features.wording.problems import describe
from fx_lsp.model import MEMORY, Failure, StepMemory, Target, Trace, write_work
from fx_lsp.tracing.engine import Engine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp fit`."""
    parser.add_argument(
        "paths", nargs="*", default=["."], metavar="PATH", help="a file or a directory (default: the working directory)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure the training programs in files, and print the result of each. Raises UsageError."""
    rows = asyncio.run(_measured(arguments, find_sources(arguments.paths)))
    if arguments.json:
        print(json.dumps([row for _, row in rows], indent=1))
    elif not rows:
        print("nothing to measure: no file trains a model", file=sys.stderr)
    elif any("peak" in row for _, row in rows):
        print(WORKSPACES, file=sys.stderr)
    return 0 if rows and all("peak" in row for _, row in rows) else 1


async def _measured(arguments: argparse.Namespace, sources: list[Source]) -> list[tuple[str, dict[str, Any]]]:
    """Return the file and the data of each training program, and print its lines for people."""
    engine = Engine(engine_settings(arguments), lambda file: None, lambda status: None)
    rows: list[tuple[str, dict[str, Any]]] = []
    try:
        for source in sources:
            try:
                engine.open(source.file, read_source(source.file), (source.root,))
            except (OSError, SyntaxError, ValueError):
                continue
            targets = await engine.targets(source.file)
            kinds = {} if isinstance(targets, Failure) else {target.kind: target for target in targets}
            if {"step", "script"} <= kinds.keys():
                lines, data = await _fit(engine, kinds["script"])
                rows.append((source.file, data))
                if not arguments.json:
                    print("\n  ".join([shown_path(source.file), *lines]), flush=True)
            engine.close(source.file)
    finally:
        await engine.shutdown()
    return rows


async def _fit(engine: Engine, script: Target) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the data of a program: its peak, or why there is none."""
    outcome = await engine.outcome(script.file, script.name, MEMORY, final=True)
    memory = outcome.memory if isinstance(outcome, Trace) else None
    if memory is None:
        reason = describe(outcome) if isinstance(outcome, Failure) else ""
        return [f"no peak: {reason}"], {"file": script.file, "failure": reason}
    lines = batch_lines(memory, await _larger(engine, script) if memory.batch else None)
    place = place_text(memory.span) if memory.span is not None else ""
    return [*fit_lines(memory, lines, place)], {"target": script.id, **fit_data(memory, lines)}


async def _larger(engine: Engine, script: Target) -> StepMemory | None:
    """Return the memory of a program with batches `FACTOR` times as large, None if it fails with them."""
    outcome = await engine.outcome(script.file, script.name, write_work({MEMORY: str(FACTOR)}), final=True)
    return outcome.memory if isinstance(outcome, Trace) else None
