"""`fx-lsp compare TARGET:STAGE TARGET:STAGE …`: prints several graphs beside each other, aligned.

Exit codes: 0 compared, 1 one was not traced or has no such graph, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fx_lsp.commands.columns import in_characters
from fx_lsp.commands.graph import to_json
from fx_lsp.commands.options import add_tracing_options
from fx_lsp.commands.outputs import report_unwritten, write_outputs
from fx_lsp.commands.targets import Chosen, failure_text, opened, read_target
from fx_lsp.errors import TargetError
from fx_lsp.features.comparison import AlignedRow, align
from fx_lsp.features.comparison_page import columns_text, comparison_page
from fx_lsp.features.dimensions import STYLES, SizeNames
from fx_lsp.features.lenses import PASSES, default_stage
from fx_lsp.features.text import basename
from fx_lsp.model import Failure, Stage, Trace, variant_work
from fx_lsp.tracing.engine import Engine
from fx_lsp.tracing.source.targets import stages_like


@dataclass(frozen=True)
class Compared:
    """Name a graph: a stage of a target, "" for its default, traced with an optional tensor or flag (`variant`)."""

    target: str
    stage: str
    variant: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp compare`."""
    parser.add_argument(
        "graphs",
        nargs="+",
        metavar="TARGET[@VARIANT][:STAGE]",
        help="path/to/file.py::function, an optional tensor or flag to trace with, a graph or a stage of the passes; "
        "@VARIANT and :STAGE alone are of the first target",
    )
    parser.add_argument("--full", action="store_true", help="print all rows, not only those around differences")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    parser.add_argument("--html", metavar="FILE", help="write one HTML file, whose columns scroll together")
    parser.add_argument("--force", action="store_true", help="let --html replace a file that fx-lsp did not write")
    parser.add_argument(
        "--sizes",
        choices=STYLES,
        default="numbers",
        help="how to show sizes that have names in the code: f32[B, T], f32[4, 8] (default), or f32[B=4, T=8]",
    )
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Trace the targets and print their graphs. Raises TargetError for a target without a file."""
    return asyncio.run(_compare(arguments))


def read_graphs(texts: Sequence[str]) -> list[Compared]:
    """Return the graphs that a command names. Raises TargetError for fewer than two, or for one without a target."""
    if len(texts) < 2:
        raise TargetError("a comparison needs two graphs or more")
    graphs: list[Compared] = []
    for text in texts:
        path, separator, rest = text.rpartition("::")
        name, _, stage = rest.partition(":") if separator else text.partition(":")
        name, _, variant = name.partition("@")
        if not separator and (name or not graphs):
            raise TargetError(f"`{text}` is not a target: write it as path/to/file.py::function:stage")
        graphs.append(Compared(f"{path}::{name}" if separator else graphs[0].target, stage, variant))
    return graphs


async def _compare(arguments: argparse.Namespace) -> int:
    graphs = read_graphs(arguments.graphs)
    stages: list[Stage] = []
    titles: list[str] = []
    for graph in graphs:
        chosen = read_target(graph.target)
        async with opened(arguments, chosen) as engine:
            answer = await _stage(engine, chosen, graph, arguments.sizes)
        if isinstance(answer, str):
            print(answer, file=sys.stderr)
            return 1
        with_variant = f" with {graph.variant}" if graph.variant else ""
        titles.append(f"{basename(chosen.file)}::{chosen.name}{with_variant} · {answer.name}")
        stages.append(answer)
    return _print(arguments, titles, align(stages))


async def _stage(engine: Engine, chosen: Chosen, graph: Compared, sizes: Any) -> Stage | str:
    """Return the stage of a graph, with sizes in a style; or why there is none, as text."""
    names: list[str] = []
    for work in ("", PASSES):
        work = variant_work(graph.variant, work)
        outcome = await engine.outcome(chosen.file, chosen.name, work, final=True)
        if not isinstance(outcome, Trace):
            return failure_text(outcome, chosen)
        name = graph.stage or default_stage(outcome)
        names += [info.name for info in outcome.stages]
        if outcome.info(name) is not None:
            stage = await engine.stage(chosen.file, chosen.name, name, work)
            if isinstance(stage, Failure):
                return failure_text(stage, chosen)
            shown = SizeNames(outcome, sizes)
            return Stage(stage.name, tuple(map(shown.renamed, stage.nodes)))
    return f"fx-lsp: {graph.target} has no stage {graph.stage}. {stages_like(graph.stage, [*dict.fromkeys(names)])}"


def _print(arguments: argparse.Namespace, titles: list[str], rows: tuple[AlignedRow, ...]) -> int:
    if arguments.html is not None:
        try:
            write_outputs({Path(arguments.html): comparison_page(titles, rows)}, arguments.force)
        except OSError as error:
            return report_unwritten(error, arguments.html)
    elif arguments.json:
        print(json.dumps(in_characters(to_contract(titles, rows)), indent=2))
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        print("\n".join(columns_text(titles, rows, width, arguments.full)))
    return 0


def to_contract(titles: Sequence[str], rows: Sequence[AlignedRow]) -> dict[str, Any]:
    """Return the stable JSON for scripts: each row with the node of each graph, or null, and whether it differs from
    the first.
    """
    return {
        "graphs": list(titles),
        "rows": [
            {"nodes": [None if n is None else to_json(n) for n in row.nodes], "unlike": list(row.unlike)}
            for row in rows
        ],
    }
