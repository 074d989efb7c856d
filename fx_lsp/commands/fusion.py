"""`fx-lsp fusion TARGET`: prints the kernels of a target, and why neighbouring kernels are not one.

Exit codes: 0 printed, 1 not traced, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from fx_lsp.commands.options import add_tracing_options
from fx_lsp.commands.targets import print_page, read_target, traced_with
from fx_lsp.features.fusion import fusion_data
from fx_lsp.features.lenses import FUSION, FUSION_DATA, INDUCTOR_FUSION
from fx_lsp.model import variant_work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp fusion`."""
    parser.add_argument("target", metavar="TARGET", help="path/to/file.py::function, ::Class or ::Class.method")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--inductor", action="store_true", help="print the kernels of Inductor instead of fx-lsp's")
    shown.add_argument("--json", action="store_true", help="print the kernels and reasons of both as JSON")
    parser.add_argument("--variant", metavar="NAME", help="trace with this optional tensor, or this flag: balance=True")
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the kernels of the target. Raises TargetError for one without a file."""
    return asyncio.run(_fusion(arguments))


async def _fusion(arguments: argparse.Namespace) -> int:
    chosen, work = read_target(arguments.target), variant_work(arguments.variant or "", FUSION)
    wanted = FUSION_DATA if arguments.json else INDUCTOR_FUSION if arguments.inductor else FUSION
    answer = await traced_with(arguments, chosen, work, [wanted])
    if answer is None:
        return 1
    trace, (page,) = answer
    if arguments.json:
        print(json.dumps({"target": arguments.target, "torch": trace.torch, **fusion_data(page)}, indent=2))
    else:
        print_page(trace, page, "kernels, and why neighbours are not one")
    return 0
