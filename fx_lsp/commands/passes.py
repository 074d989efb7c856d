"""`fx-lsp passes TARGET`: prints the compiler's stages of a function or module, and the changes of each pass.

Exit codes: 0 traced, 1 not traced, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

from fx_lsp import wire
from fx_lsp.commands.columns import in_characters
from fx_lsp.commands.graph import to_json
from fx_lsp.commands.options import add_tracing_options
from fx_lsp.commands.targets import failure_text, opened, print_document, read_target, source_line, stages_of
from fx_lsp.features.diffs import render_diff
from fx_lsp.features.documents import render_stage
from fx_lsp.features.inputs import input_data
from fx_lsp.features.lenses import work_of_pass
from fx_lsp.features.passes import render_passes, render_run
from fx_lsp.model import Failure, Outcome, Stage, Trace, Work, read_work, variant_work, write_work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp passes`."""
    parser.add_argument("target", metavar="TARGET", help="path/to/file.py::function, ::Class or ::Class.method")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--diff", nargs=2, metavar=("A", "B"), help="print what changed from stage A to stage B")
    shown.add_argument("--stage", metavar="S", help="print one stage")
    shown.add_argument("--json", action="store_true", help="print every stage as JSON")
    parser.add_argument("--all", action="store_true", help="also list passes that changed nothing")
    parser.add_argument("--full", action="store_true", help="print every node, including repeated loops and layers")
    parser.add_argument("--code", action="store_true", help="also generate the output code of Inductor")
    parser.add_argument(
        "--table",
        metavar="T",
        help="decompositions: inductor (default), core (core ATen), or module.attribute of another table",
    )
    parser.add_argument(
        "--check", action="store_true", help="run the graphs before and after each pass on random inputs, and compare"
    )
    parser.add_argument("--pass", dest="own", metavar="FILE::NAME", help="run this custom pass on the target instead")
    parser.add_argument("--breaks", action="store_true", help="list the graphs of torch.compile, and the graph breaks")
    parser.add_argument("--partitions", action="store_true", help="compare what each partitioner saves")
    parser.add_argument("--budgets", metavar="B,…", help="their activation_memory_budget values, from 0 to 1")
    parser.add_argument(
        "--debug",
        action="store_true",
        help="show the graph before functionalization and in core operations, aliases, mutations, fake vs. real",
    )
    parser.add_argument("--variant", metavar="NAME", help="trace with this optional tensor, or this flag: balance=True")
    parser.add_argument("--on", metavar="G", help="its graph: inference, core, torch, joint, forward or backward")
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile the target up to its code, and print the requested stages. Raises TargetError for one without a file."""
    return asyncio.run(_passes(arguments))


def work_of(arguments: argparse.Namespace) -> Work:
    """Return the requested work."""
    if arguments.partitions or arguments.budgets:
        return write_work({"partitions": "", **({"budgets": arguments.budgets} if arguments.budgets else {})})
    if arguments.breaks:
        return "breaks"
    if arguments.debug:
        return "debug"
    check = {"check": ""} if arguments.check else {}
    if arguments.own:
        chosen = read_target(arguments.own)
        graph = {"on": arguments.on} if arguments.on else {}
        return write_work({**read_work(work_of_pass(chosen.file, chosen.name)), **graph, **check})
    wanted = [arguments.stage or "", *(arguments.diff or ())]
    code = {"code": ""} if arguments.code or any(name.endswith(":code") for name in wanted) else {}
    table = {"table": arguments.table} if arguments.table and arguments.table != "inductor" else {}
    return write_work({"passes": "", **table, **code, **check})


async def _passes(arguments: argparse.Namespace) -> int:
    chosen, work = read_target(arguments.target), variant_work(arguments.variant or "", work_of(arguments))
    stages: list[Stage] = []
    async with opened(arguments, chosen) as engine:
        outcome: Outcome = await engine.outcome(chosen.file, chosen.name, work)
        if isinstance(outcome, Trace):
            answer = await stages_of(engine, chosen, _wanted(arguments, outcome), work)
            outcome, stages = (answer, []) if isinstance(answer, Failure) else (outcome, answer)
    if arguments.json:
        print(json.dumps(in_characters(to_contract(arguments.target, outcome, stages)), indent=2))
    elif isinstance(outcome, Failure):
        print(failure_text(outcome, chosen), file=sys.stderr)
    elif arguments.diff:
        print_document(render_diff(outcome, *stages))
    elif (arguments.own or arguments.debug) and not arguments.stage:
        print_document(render_run(outcome, {stage.name: stage for stage in stages}))
    elif stages:
        texts = {chosen.file: chosen.text}
        print_document(render_stage(outcome, stages[0], lambda span: source_line(span, texts), arguments.full))
    else:
        print_document(render_passes(outcome, arguments.all))
    return 1 if isinstance(outcome, Failure) else 0


def _wanted(arguments: argparse.Namespace, trace: Trace) -> list[str]:
    """Return the names of the stages to print."""
    if arguments.diff or arguments.stage:
        return list(arguments.diff or [arguments.stage])
    if (arguments.partitions or arguments.budgets) and not arguments.json:
        return ["table"]
    if arguments.breaks and not arguments.json:
        return ["breaks"]
    changed = [info.name for info in trace.stages if info.change is None or info.change]
    return changed if arguments.json or arguments.own or arguments.debug else []


def to_contract(target: str, outcome: Outcome, stages: list[Stage]) -> dict[str, Any]:
    """Return the stable JSON for scripts: every stage with its origin; with nodes if its pass changed something."""
    if isinstance(outcome, Failure):
        fields = ("kind", "message", "span", "hint")
        return {"target": target, "failure": {k: wire.to_json(getattr(outcome, k)) for k in fields}}
    by_name = {stage.name: stage for stage in stages}
    entries: list[dict[str, Any]] = []
    for info in outcome.stages:
        stage = by_name.get(info.name)
        entry: dict[str, Any] = wire.to_json(info)
        if stage is not None:
            entry |= {"text": stage.text} if stage.text else {"nodes": [to_json(n) for n in stage.nodes]}
        else:
            del entry["nodes"]
        entries.append(entry)
    return {
        "target": target,
        "torch": outcome.torch,
        "inputs": [input_data(i) for i in outcome.inputs],
        "stages": entries,
        "seconds": outcome.seconds,
    }
