"""Define the options of every command that traces."""

from __future__ import annotations

import argparse
from pathlib import Path

from fx_lsp.tracing.answers.disk import default_cache_path


def add_tracing_options(parser: argparse.ArgumentParser) -> None:
    """Add `--python` and `--no-cache`."""
    parser.add_argument(
        "--python",
        type=_from_here,
        metavar="PATH",
        help="the interpreter that has torch, or its environment (default: found as editors do)",
    )
    parser.add_argument("--no-cache", action="store_true", help="trace again even if a result is cached")


def cache_path(arguments: argparse.Namespace) -> str | None:
    """Return the path of stored answers; None with `--no-cache`."""
    return None if arguments.no_cache else str(default_cache_path())


def _from_here(path: str) -> str:
    """Return a path relative to the working directory, if it exists; else a command's name unchanged."""
    file = Path(path).expanduser()
    return str(file.absolute()) if file.exists() else path
