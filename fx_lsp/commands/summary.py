"""`fx-lsp summary TARGET`: prints the cost of a function or module, in total, by submodule and by source line.

Exit codes: 0 traced, 1 not traced, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from functools import partial

from fx_lsp.commands.columns import in_characters
from fx_lsp.commands.graph import to_contract
from fx_lsp.commands.options import add_tracing_options
from fx_lsp.commands.targets import failure_text, opened, print_document, read_target, source_line, stages_of
from fx_lsp.features.inputs import input_data
from fx_lsp.features.summary import render_summary, stages_of_summary, summary_of, summary_to_json
from fx_lsp.model import Failure, Outcome, Stage, Trace, variant_work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp summary`."""
    parser.add_argument("target", metavar="TARGET", help="path/to/file.py::function, ::Class or ::Class.method")
    parser.add_argument("--variant", metavar="NAME", help="trace with this optional tensor, or this flag: balance=True")
    parser.add_argument("--full", action="store_true", help="list every module, including repeated layers")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Trace the target and print its cost. Raises TargetError for a target without a file."""
    return asyncio.run(_summary(arguments))


async def _summary(arguments: argparse.Namespace) -> int:
    chosen, work = read_target(arguments.target), variant_work(arguments.variant or "")
    stages: list[Stage] = []
    async with opened(arguments, chosen) as engine:
        outcome: Outcome = await engine.outcome(chosen.file, chosen.name, work)
        if isinstance(outcome, Trace):
            answer = await stages_of(engine, chosen, stages_of_summary(outcome), work)
            outcome, stages = (answer, []) if isinstance(answer, Failure) else (outcome, answer)
    line = partial(source_line, texts={chosen.file: chosen.text})
    if isinstance(outcome, Failure):
        if arguments.json:
            print(json.dumps(in_characters(to_contract(arguments.target, outcome, ())), indent=2))
        else:
            print(failure_text(outcome, chosen), file=sys.stderr)
        return 1
    if arguments.json:
        inputs = [input_data(i) for i in outcome.inputs]
        data = summary_to_json(summary_of(outcome, stages), line)
        document = {"target": arguments.target, "inputs": inputs, **data, "seconds": outcome.seconds}
        print(json.dumps(in_characters(document), indent=2))
    else:
        print_document(render_summary(outcome, stages, line, arguments.full))
    return 0
