"""`fx-lsp recompiles TARGET`: prints the calls of a project that `torch.compile` compiles again, and the guards.

Exit codes: 0 traced, 1 not traced, 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import json

from fx_lsp.commands.options import add_tracing_options
from fx_lsp.commands.targets import print_page, read_target, traced_with
from fx_lsp.features.lenses import RECOMPILES, RECOMPILES_DATA
from fx_lsp.model import variant_work, write_work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp recompiles`."""
    parser.add_argument("target", metavar="TARGET", help="path/to/file.py::function, ::Class or ::Class.method")
    parser.add_argument("--json", action="store_true", help="print calls, guards and changes as JSON")
    parser.add_argument("--calls", action="store_true", help="only the calls of the project, without other arguments")
    parser.add_argument("--variant", metavar="NAME", help="trace with this optional tensor, or this flag: balance=True")
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compile the calls of the target in order, and print the result. Raises TargetError for one without a file."""
    return asyncio.run(_recompiles(arguments))


async def _recompiles(arguments: argparse.Namespace) -> int:
    work = write_work({RECOMPILES: "", **({"only": "calls"} if arguments.calls else {})})
    work = variant_work(arguments.variant or "", work)
    answer = await traced_with(arguments, read_target(arguments.target), work, [RECOMPILES, RECOMPILES_DATA])
    if answer is None:
        return 1
    trace, (page, data) = answer
    if arguments.json:
        contract = {"target": arguments.target, "torch": trace.torch, **json.loads(data.text)}
        print(json.dumps(contract, indent=2))
    else:
        print_page(trace, page, "calls that torch.compile compiles again")
    return 0
