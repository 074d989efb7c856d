"""`fx-lsp diverge TARGET`: prints the first pass and node whose numbers differ by more than rounding.

Exit codes: 0 no result differs, 1 one differs or the target is not traced, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

from fx_lsp.commands.options import add_tracing_options
from fx_lsp.commands.targets import print_document, print_page, read_target, source_line, traced_with
from fx_lsp.features.documents import render_stage
from fx_lsp.features.lenses import DIVERGE, DIVERGE_DATA, DIVERGE_KERNELS
from fx_lsp.model import Work, variant_work, write_work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp diverge`."""
    parser.add_argument("target", metavar="TARGET", help="path/to/file.py::function, ::Class or ::Class.method")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--stage", metavar="S", help="print one stage, with a comment at each node that differs")
    shown.add_argument("--json", action="store_true", help="print the comparison of each graph as JSON")
    parser.add_argument("--full", action="store_true", help="print every node, including repeated loops and layers")
    compared = parser.add_mutually_exclusive_group()
    compared.add_argument("--pass", dest="own", metavar="FILE::NAME", help="compare before and after this custom pass")
    compared.add_argument("--inductor", action="store_true", help="also run the code of Inductor for the CPU")
    compared.add_argument("--kernels", action="store_true", help="compare what each generated Triton kernel writes")
    parser.add_argument("--on", metavar="G", help="its graph: inference, core, torch, joint, forward or backward")
    parser.add_argument("--variant", metavar="NAME", help="trace with this optional tensor, or this flag: balance=True")
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare the graphs of the target, and print the result. Raises TargetError for one without a file."""
    return asyncio.run(_diverge(arguments))


def work_of(arguments: argparse.Namespace) -> Work:
    """Return the requested work. Raises TargetError for a pass without a file."""
    if arguments.kernels:
        return write_work({DIVERGE_KERNELS: ""})
    parts = {DIVERGE: ""}
    if arguments.inductor:
        parts["inductor"] = ""
    if arguments.own:
        chosen = read_target(arguments.own)
        parts["pass"] = f"{chosen.file}::{chosen.name}"
    if arguments.own and arguments.on:
        parts["on"] = arguments.on
    return write_work(parts)


async def _diverge(arguments: argparse.Namespace) -> int:
    chosen, work = read_target(arguments.target), variant_work(arguments.variant or "", work_of(arguments))
    wanted = [DIVERGE, DIVERGE_DATA, *([arguments.stage] if arguments.stage else [])]
    answer = await traced_with(arguments, chosen, work, wanted)
    if answer is None:
        return 1
    trace, (page, data, *others) = answer
    graphs: list[dict[str, Any]] = json.loads(data.text)
    if arguments.json:
        contract = {"target": arguments.target, "torch": trace.torch, "graphs": graphs}
        print(json.dumps(contract, indent=2))
    elif others:
        texts = {chosen.file: chosen.text}
        print_document(render_stage(trace, others[0], lambda span: source_line(span, texts), arguments.full))
    else:
        print_page(trace, page, "graphs compared node by node")
    return 1 if any(graph["first"] for graph in graphs) else 0
