"""`fx-lsp fit [PATH…]`: the peak memory of training programs, without a GPU.

Exit codes: 0 if there is a peak for each training program, 1 if not, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from fx_lsp.commands.options import add_tracing_options, engine_settings
from fx_lsp.commands.places import place_text
from fx_lsp.commands.sources import Source, find_sources, read_source, shown_path
from fx_lsp.features.costs.fit import WORKSPACES, fit_data, fit_lines
from fx_lsp.features.wording.problems import describe
from fx_lsp.model import Failure, Target
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.fitting import measured_fit


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
    elif any(row.get("device") == "cuda" for _, row in rows):
        print(WORKSPACES, file=sys.stderr)
    return 0 if rows and all("peak" in row for _, row in rows) else 1


async def _measured(arguments: argparse.Namespace, sources: list[Source]) -> list[tuple[str, dict[str, Any]]]:
    """Return the file and the data of each training program, and print its lines for people: of the files that are
    named, and of those in folders that have the loop which trains.
    """
    engine = Engine(engine_settings(arguments), lambda file: None, lambda status: None)
    named = {str(Path(path).resolve()) for path in arguments.paths}
    rows: list[tuple[str, dict[str, Any]]] = []
    try:
        for source in sources:
            outcome = await _of_file(engine, source, source.file in named)
            if outcome is not None:
                lines, data = outcome
                rows.append((source.file, data))
                if not arguments.json:
                    print("\n  ".join([shown_path(source.file), *lines]), flush=True)
    finally:
        await engine.shutdown()
    return rows


async def _of_file(engine: Engine, source: Source, is_named: bool) -> tuple[list[str], dict[str, Any]] | None:
    """Return the lines and the data of a program: its peak, or why there is none; None where a folder's file trains
    nothing.
    """
    try:
        engine.open(source.file, read_source(source.file), (source.root,))
    except (OSError, SyntaxError, ValueError) as error:
        return _no_peak(source.file, f"{source.file} cannot be read: {error}") if is_named else None
    try:
        targets = await engine.targets(source.file)
        if isinstance(targets, Failure):
            place = f"{place_text(targets.span)}: " if targets.span is not None else ""
            return _no_peak(source.file, place + describe(targets)) if is_named else None
        kinds = {target.kind: target for target in targets}
        if "script" in kinds and (is_named or "step" in kinds):
            return await _fit(engine, kinds["script"])
        return _no_peak(source.file, "it is no program that imports torch") if is_named else None
    finally:
        engine.close(source.file)


def _no_peak(file: str, reason: str) -> tuple[list[str], dict[str, Any]]:
    return [f"no peak: {reason}"], {"file": file, "failure": reason}


async def _fit(engine: Engine, script: Target) -> tuple[list[str], dict[str, Any]]:
    """Return the lines and the data of a program: its peak, or why there is none."""
    fit = await measured_fit(engine, script.file, script.name)
    if isinstance(fit, Failure):
        return _no_peak(script.file, describe(fit))
    place = place_text(fit.memory.span) if fit.memory.span is not None else ""
    return [*fit_lines(fit, place)], {"target": script.id, **fit_data(fit)}
