"""The command line: `serve` for editors, and one command for each task of terminals, scripts and CI.

Exit codes are those of the command; 2 is wrong usage, 130 an interrupt. Only `serve` imports pygls.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import signal
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from threading import current_thread, main_thread
from typing import Protocol, cast

from fx_lsp import __version__
from fx_lsp.errors import UsageError, WorkerStartError

COMMANDS = {
    "graph": "trace a function or module and print a graph",
    "compare": "print several graphs beside each other, aligned",
    "summary": "show what a function or module costs, by submodule and by line",
    "fit": "show the peak memory of training programs, and the largest batch that fits a GPU",
    "passes": "show what each compiler pass does to a function or module",
    "diverge": "find the first compiler pass and node whose numbers differ by more than rounding",
    "recompiles": "list the calls of a function or module that torch.compile compiles again, and why",
    "fusion": "list the kernels of a function or module, and why neighbouring kernels are not one",
    "kernel": "generate Triton kernels for a function or module",
    "bench": "measure the kernels of a function or module on your GPU hosts",
    "check": "trace every function and module of files and directories",
    "explain": "print the page on a problem code, with examples and fixes",
    "mcp": "run a server for coding agents, over standard input and output",
    "record": "run a command and record the inputs of its function calls",
    "trust": "let the language server run code of a folder, or list the folders and hosts that you trust",
    "doctor": "check this machine and your GPU hosts, and suggest fixes",
}


_PAGES = dict.fromkeys(("graph", "compare", "summary", "passes", "diverge", "recompiles", "fusion"), "pages")
_MODULES = {"check": "check.command", "explain": "check.explain", "mcp": "agents.mcp", **_PAGES}
"""The modules of commands that have another name."""

GARBAGE = 50_000, 20, 20
"""Thresholds of the garbage collector: high, because a large graph has a hundred thousand objects that all stay alive.
"""


class Command(Protocol):
    """Describe a module of `fx_lsp.commands`, or one of the entries of `fx_lsp.commands.pages`."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...
    def run(self, arguments: argparse.Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code, also if it is interrupted while it is imported."""
    try:
        return _run(argv)
    except KeyboardInterrupt:
        return 130


def _run(argv: Sequence[str] | None) -> int:
    """Run one command and return its exit code. Raises KeyboardInterrupt."""
    argv = sys.argv[1:] if argv is None else argv
    parser, chosen, own = _parser(argv[0] if argv else "")
    if not argv:
        parser.print_help(sys.stderr)
        return 2
    if not argv[0].startswith("-") and argv[0] not in own:
        print(f"fx-lsp: {_unlike(argv[0], [*own])}", file=sys.stderr)
        return 2
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        own[argv[0]].error(f"unrecognized arguments: {' '.join(unknown)}")  # with the usage of the command
    gc.set_threshold(*GARBAGE)
    with _ended_in_order():
        return _serve(arguments.trust) if chosen is None else _command(chosen, arguments)


def _serve(trust_always: bool) -> int:
    """Serve an editor; one that ends its server takes any other code than 0 for a crash."""
    from fx_lsp.server.app import serve

    with suppress(KeyboardInterrupt):
        return serve(trust_always=trust_always)
    return 0


def _command(chosen: Command, arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code, with its errors as sentences."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = chosen.run(arguments)
        sys.stdout.flush()
        return code
    except UsageError as error:
        print(f"fx-lsp: {error}", file=sys.stderr)
        return 2
    except WorkerStartError as error:
        print(f"fx-lsp: {error}; pass the interpreter that has torch with --python", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard the output that is still buffered
        return 141


@contextmanager
def _ended_in_order() -> Generator[None]:
    """Inside, signals that end a program interrupt it, as Ctrl-C does: it removes its temporary files."""

    def interrupt(number: int, frame: object) -> None:
        signal.raise_signal(signal.SIGINT)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    with ExitStack() as stack:
        for number in numbers:
            if current_thread() is main_thread() and signal.getsignal(number) is signal.SIG_DFL:
                stack.callback(signal.signal, number, signal.signal(number, interrupt))
        yield


def _unlike(name: str, commands: Sequence[str]) -> str:
    """Return a sentence on an unknown command, with the closest ones."""
    close = get_close_matches(name, commands, 3, 0.5)
    like = f"Did you mean {' or '.join(f'`{other}`' for other in close)}? " if close else ""
    target = f"A target follows a command: fx-lsp graph {name}. " if "::" in name or name.endswith(".py") else ""
    return f"there is no command `{name}`. {like}{target}fx-lsp --help lists the commands"


def _parser(name: str) -> tuple[argparse.ArgumentParser, Command | None, dict[str, argparse.ArgumentParser]]:
    """Return the parser, the module of the command `name`, and the parsers of all commands by name.

    Only the command `name` is imported and gets its arguments.
    """
    parser = argparse.ArgumentParser(
        "fx-lsp", description="ATen graphs, shapes and what autograd saves, for PyTorch code."
    )
    parser.add_argument("--version", action="version", version=f"fx-lsp {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="run the language server over standard input and output")
    parsers = {"serve": serve}
    serve.add_argument(
        "--stdio",
        action="store_true",
        help="accepted for clients that pass it; standard input and output are always used",
    )
    serve.add_argument("--trust", action="store_true", help="run code of every folder, and never ask")
    chosen: Command | None = None
    for command, what in COMMANDS.items():
        added = commands.add_parser(command, help=what, description=f"{what[0].upper()}{what[1:]}.")
        parsers[command] = added
        if command == name:
            chosen = command_of(name)
            chosen.add_arguments(added)
    return parser, chosen, parsers


def command_of(name: str) -> Command:
    """Import a command, and no other."""
    module = import_module(f"fx_lsp.commands.{_MODULES.get(name, name)}")
    return cast("Command", module.PAGES[name] if name in _PAGES else module)
