"""The command line that a script finds while it is traced: its own name and nothing else, which is enough for it."""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fx_lsp.tracer.inputs.plan.values import number_named


@dataclass
class CommandLine:
    """Values that a program required and that were made up: the names of their arguments; the `file` of the program."""

    invented: list[str] = field(default_factory=list[str])
    file: str = ""


@contextmanager
def started_as(file: str) -> Generator[CommandLine, None, None]:
    """Inside, the arguments and the import path are those that Python gives the script `file`, and a parser of
    arguments has a value for everything that it requires."""
    line = CommandLine(file=file)
    before: tuple[Sequence[str], Sequence[str]] = list(sys.argv), list(sys.path)
    original = argparse.ArgumentParser.parse_known_args
    sys.argv[:] = [file]
    sys.path.append(os.path.dirname(file))
    argparse.ArgumentParser.parse_known_args = _parse_known_args(original, line)
    try:
        yield line
    finally:
        argparse.ArgumentParser.parse_known_args = original
        sys.argv[:], sys.path[:] = before


def _parse_known_args(original: Any, line: CommandLine) -> Any:
    """`parse_known_args` for a command line of the process: what is required has a value by type, choices or name."""

    def parse_known_args(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None, **options: Any) -> Any:
        if args is None:
            args = [*sys.argv[1:], *_satisfied(self, line)]
        return original(self, args, namespace, **options)

    return parse_known_args


def _satisfied(parser: argparse.ArgumentParser, line: CommandLine) -> list[str]:
    """Give each required argument a default; return the subcommand to parse, where one has to be."""
    commands: list[str] = []
    for group in parser._mutually_exclusive_groups:
        group.required = False
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            name, chosen = next(iter(action.choices.items()), ("", None))
            if chosen is not None:
                line.invented.append(action.dest)
                commands += [name, *_satisfied(chosen, line)]
            continue
        positional = not action.option_strings
        if action.required or (positional and action.nargs not in ("?", "*")):
            several = action.nargs in ("+", "*") or isinstance(action.nargs, int)
            value = _value(action, line.file)
            line.invented.append(action.dest)
            if action.default is None:
                action.default = [value] * (action.nargs if isinstance(action.nargs, int) else 1) if several else value
            action.required = False
            if positional:
                action.nargs = "*" if several else "?"
    return commands


def _value(action: argparse.Action, file: str) -> Any:
    """A value for an argument: the first of its choices, of the words that the program compares it with, or one of its
    type that its name suggests."""
    if action.choices:
        return next(iter(action.choices))
    kind: Any = action.type
    if kind is None or kind is str:
        return next(_compared_with(action.dest, file), action.dest)
    number = number_named(action.dest)
    for text in (str(number), "0", action.dest):
        try:
            return kind(text) if callable(kind) else action.dest
        except Exception:
            continue
    return None


def _compared_with(name: str, file: str) -> Iterator[str]:
    """The words that a program compares an attribute with: `args.task == "train"`, `args.task in ("train", "test")`."""
    try:
        tree = ast.parse(Path(file).read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == name:
            constants = (
                part for other in node.comparators for part in ast.walk(other) if isinstance(part, ast.Constant)
            )
            yield from (constant.value for constant in constants if isinstance(constant.value, str))


def flags_parsed() -> None:
    """Have flags of `absl`, if it was imported, answer with their defaults before a program has parsed them."""
    for name, module in list(sys.modules.items()):
        holder = getattr(module, "FLAGS", None) if name.endswith("flags") else None
        parsed = inspect.getattr_static(holder, "mark_as_parsed", None) if holder is not None else None
        if parsed is not None and holder is not None:
            holder.mark_as_parsed()
