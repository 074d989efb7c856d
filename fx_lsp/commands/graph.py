"""`fx-lsp graph TARGET`: prints one graph of a function or module, or everything known of it as JSON.

Exit codes: 0 traced, 1 not traced, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fx_lsp import wire
from fx_lsp.commands.columns import in_characters
from fx_lsp.commands.options import add_tracing_options
from fx_lsp.commands.outputs import report_unwritten, write_outputs
from fx_lsp.commands.targets import (
    failure_text,
    opened,
    print_document,
    read_target,
    source_line,
    source_lines,
    stages_of,
)
from fx_lsp.features.dimensions import STYLES
from fx_lsp.features.documents import render_stage
from fx_lsp.features.inputs import input_data
from fx_lsp.features.lenses import TORCHSCRIPT, default_stage
from fx_lsp.features.partial import EXECUTED, shown_trace
from fx_lsp.features.web_page import web_page
from fx_lsp.model import Failure, Node, Outcome, Stage, Trace, variant_work
from fx_lsp.tracing.source.targets import stages_like

STAGES = ("forward", "backward", "joint", "inference", "graph", "table", "code", EXECUTED, TORCHSCRIPT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp graph`."""
    parser.add_argument("target", metavar="TARGET", help="path/to/file.py::function, ::Class or ::Class.method")
    parser.add_argument(
        "--stage",
        choices=STAGES,
        help="which graph (default: forward, or inference if there is no backward); for a hand-built graph: "
        "graph (default), table or code; torchscript for either; for a target that fails: torch, the part that ran",
    )
    parser.add_argument("--variant", metavar="NAME", help="trace with this optional tensor, or this flag: balance=True")
    parser.add_argument("--full", action="store_true", help="print every node, including repeated loops and layers")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    parser.add_argument(
        "--html", metavar="FILE", help="write all graphs beside the source to one HTML file, to attach to an issue"
    )
    parser.add_argument("--force", action="store_true", help="let --html replace a file that fx-lsp did not write")
    parser.add_argument(
        "--sizes",
        choices=STYLES,
        default=STYLES[0],
        help="how to show sizes that have names in the code: f32[B, T] (default), f32[4, 8], or f32[B=4, T=8]",
    )
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Trace the target and print the requested graph. Raises TargetError for a target without a file."""
    return asyncio.run(_graph(arguments))


async def _graph(arguments: argparse.Namespace) -> int:
    chosen = read_target(arguments.target)
    work = variant_work(arguments.variant or "", TORCHSCRIPT if arguments.stage == TORCHSCRIPT else "")
    async with opened(arguments, chosen) as engine:
        outcome = await engine.outcome(chosen.file, chosen.name, work, final=True)
        trace, stages = shown_trace(outcome, chosen.file), list[Stage]()
        if trace is not None:
            answer = await stages_of(engine, chosen, (info.name for info in trace.stages), work)
            outcome, stages = (answer, []) if isinstance(answer, Failure) else (outcome, answer)
        targets = await engine.targets(chosen.file)
    texts = {chosen.file: chosen.text}
    if arguments.html is not None and trace is not None and stages:
        target = next(t for t in (() if isinstance(targets, Failure) else targets) if t.name == chosen.name)
        return _write_page(arguments, web_page(target, trace, stages, source_lines(texts), arguments.sizes), outcome)
    if arguments.json:
        print(json.dumps(in_characters(to_contract(arguments.target, outcome, stages)), indent=2))
    elif isinstance(outcome, Failure):
        print(failure_text(outcome, chosen), file=sys.stderr)
        if trace is not None and stages and arguments.stage in (None, EXECUTED):
            _print_stage(trace, stages, EXECUTED, arguments, texts)
    else:
        name = arguments.stage or default_stage(outcome)
        return _print_stage(outcome, stages, name, arguments, texts)
    return 1 if isinstance(outcome, Failure) else 0


def _write_page(arguments: argparse.Namespace, page: str, outcome: Outcome) -> int:
    try:
        write_outputs({Path(arguments.html): page}, arguments.force)
    except OSError as error:
        return report_unwritten(error, arguments.html)
    if isinstance(outcome, Failure):
        print(failure_text(outcome, read_target(arguments.target)), file=sys.stderr)
    return 1 if isinstance(outcome, Failure) else 0


def _print_stage(
    trace: Trace, stages: list[Stage], name: str, arguments: argparse.Namespace, texts: dict[str, str]
) -> int:
    by_name = {s.name: s for s in stages}
    if name not in by_name:
        print(f"fx-lsp: {trace.target} has no stage {name}. {stages_like(name, [*by_name])}", file=sys.stderr)
        return 1
    stage, line = by_name[name], partial(source_line, texts=texts)
    document = render_stage(trace, stage, line, arguments.full, arguments.sizes)
    print_document(document)
    return 0


def to_contract(target: str, outcome: Outcome, stages: Sequence[Stage]) -> dict[str, Any]:
    """Return the stable JSON for scripts."""
    if isinstance(outcome, Failure):
        fields = ("kind", "message", "span", "hint")
        failure = {k: wire.to_json(getattr(outcome, k)) for k in fields}
        partial = {"inputs": [input_data(i) for i in outcome.inputs], "stages": [stage_to_json(s) for s in stages]}
        return {"target": target, "failure": failure, **(partial if stages else {})}
    return {
        "target": target,
        "inputs": [input_data(i) for i in outcome.inputs],
        "stages": [stage_to_json(s) for s in stages],
        "saved": [{k: wire.to_json(getattr(s, k)) for k in ("name", "spec", "bytes", "span")} for s in outcome.saved],
        "seconds": outcome.seconds,
        "called_in": outcome.context.shown,
        "variants": [variant.name for variant in outcome.variants],
    }


def stage_to_json(stage: Stage) -> dict[str, Any]:
    """Return a stage in the contract's form; one that is not a graph has `text`."""
    shown: dict[str, Any] = {"name": stage.name, "nodes": [to_json(n) for n in stage.nodes]}
    return {**shown, "text": stage.text} if stage.text else shown


def to_json(node: Node) -> dict[str, Any]:
    """Return a node in the contract's form."""
    fields = ("name", "op", "target", "args", "spec", "span", "users", "flops", "moved_bytes", "sent_bytes", "module")
    return {k: wire.to_json(getattr(node, k)) for k in fields}
