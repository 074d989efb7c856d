"""Define the options of every command that traces."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from fx_lsp.choices import allowed, defaults, explained
from fx_lsp.tracing.answers.disk import default_cache_path
from fx_lsp.tracing.engine import EngineSettings
from fx_lsp.tracing.workers.pool import Limits

MAX_SECONDS = 1e9
"""The longest time limit, so that clocks can add it."""


def add_tracing_options(parser: argparse.ArgumentParser) -> None:
    """Add `--python`, `--no-cache`, and what traced code is allowed besides."""
    parser.add_argument(
        "--python",
        type=from_here,
        metavar="PATH",
        help="the interpreter that has torch, or its environment (default: found as editors do)",
    )
    parser.add_argument("--no-cache", action="store_true", help="trace again even if a result is cached")
    parser.add_argument(
        "--limit-seconds",
        type=_seconds,
        default=Limits().seconds,
        metavar="S",
        help=f"stop a trace that takes longer (default: {Limits().seconds:g})",
    )
    parser.add_argument(
        "--allow-read",
        type=from_here,
        action="append",
        default=[],
        metavar="PATH",
        help="let traced code read this file or folder outside of the project",
    )
    parser.add_argument(
        "--allow-program", action="append", default=[], metavar="NAME", help="let traced code start this program"
    )


def add_choices(parser: argparse.ArgumentParser, names: Iterable[str], before: str = "") -> None:
    """Add an option for each of these choices of kernels; their help begins with `before`."""
    sentences, values, default = explained(), allowed(), defaults()
    for name in names:
        parser.add_argument(
            f"--{name}",
            choices=values[name] or None,
            default=default[name],
            metavar=None if values[name] else "NAMES",
            help=f"{before}{sentences[name]} (default: {default[name]})",
        )


def engine_settings(arguments: argparse.Namespace) -> EngineSettings:
    """Return the settings of an engine that only traces on request."""
    reads, programs = tuple(arguments.allow_read), tuple(arguments.allow_program)
    return EngineSettings(
        interpreter=arguments.python,
        cache_path=None if arguments.no_cache else str(default_cache_path()),
        limits=Limits(seconds=arguments.limit_seconds, reads=reads, programs=programs),
        trace_on_open=False,
    )


def _seconds(text: str) -> float:
    """Return a number of seconds above 0. Raises ValueError."""
    seconds = float(text)
    if not 0 < seconds <= MAX_SECONDS:
        raise ValueError(text)
    return seconds


def from_here(path: str) -> str:
    """Return a path relative to the working directory, if it exists; else a command's name unchanged."""
    file = Path(path).expanduser()
    return str(file.absolute()) if file.exists() else path
