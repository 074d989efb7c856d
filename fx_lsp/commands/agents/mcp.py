"""`fx-lsp mcp`: a server of the Model Context Protocol for coding agents, over standard input and output.

The exit code is 0, or 2 without the packages of the protocol.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from dataclasses import replace
from importlib.util import find_spec

from fx_lsp.commands.agents.files import Agents
from fx_lsp.commands.options import add_tracing_options, engine_settings
from fx_lsp.tracing.engine import EngineSettings
from fx_lsp.tracing.workers.capacity import parallel_traces

HOW_TO_INSTALL = 'fx-lsp: `fx-lsp mcp` needs the Python SDK of the protocol: pip install "mcp>=2,<3"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `fx-lsp mcp`."""
    parser.add_argument("--trust", action="store_true", help="run code of every folder")
    add_tracing_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Serve until standard input ends."""
    if find_spec("mcp") is None:
        print(HOW_TO_INSTALL, file=sys.stderr)
        return 2
    settings = engine_settings(arguments)
    workers = parallel_traces(settings.limits.memory_bytes)
    asyncio.run(_serve(replace(settings, workers=workers), arguments.trust))
    return 0


async def _serve(settings: EngineSettings, trust_always: bool) -> None:
    from fx_lsp.commands.agents.tools import server_of

    agents = Agents(settings, trust_always)
    try:
        await server_of(agents).run_stdio_async()
    finally:
        await agents.shutdown()
