"""Provide a command line for a traced script: its own name, and values for required arguments."""

from __future__ import annotations

import argparse
import ast
import inspect
import os
import re
import sys
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fx_lsp import files
from fx_lsp.tracer.program.processes.launchers import Launchers
from fx_lsp.tracer.program.scratch import scratch_files
from fx_lsp.tracer.source.likely_numbers import number_named


@dataclass
class CommandLine:
    """Hold the names of required arguments whose values were assumed; the `file` of the program.

    `unset` are options without a value and without a default.
    """

    invented: list[str] = field(default_factory=list[str])
    unset: list[str] = field(default_factory=list[str])
    file: str = ""
    _launchers: Launchers | None = None

    @property
    def launchers(self) -> Launchers:
        """Return the replacement of functions that launch others of the program."""
        if self._launchers is None:
            self._launchers = Launchers(self.invent)
        return self._launchers

    def invent(self, name: str, kind: Any, choices: Sequence[Any]) -> Any:
        """Return a made-up value for a required argument."""
        self.invented.append(name)
        return _value(name, kind if kind is not inspect.Parameter.empty else None, choices, self.file)

    def imported(self) -> None:
        """Prepare the modules that a program has imported by now."""
        self.launchers.replace()
        flags_parsed()


@contextmanager
def started_as(file: str) -> Generator[CommandLine, None, None]:
    """Set the arguments and the import path inside to those that Python gives the script `file`. An argument parser
    gets a value for everything that it requires, and files are written to a scratch folder.
    """
    line = CommandLine(file=file)
    before: tuple[Sequence[str], Sequence[str]] = list(sys.argv), list(sys.path)
    directory = os.getcwd()
    original = argparse.ArgumentParser.parse_known_args
    sys.argv[:] = [file]
    sys.path.append(os.path.dirname(file))
    argparse.ArgumentParser.parse_known_args = _parse_known_args(original, line)
    os.chdir(_started_in(file))
    try:
        with scratch_files():
            yield line
    finally:
        argparse.ArgumentParser.parse_known_args = original
        line.launchers.restore()
        sys.argv[:], sys.path[:] = before
        os.chdir(directory)


def _parse_known_args(original: Any, line: CommandLine) -> Any:
    """Return a `parse_known_args` for the process's command line: required arguments get a value by type, choices or
    name.
    """

    def parse_known_args(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None, **options: Any) -> Any:
        if args is None:
            args = [*sys.argv[1:], *_satisfied(self, line)]
        return original(self, args, namespace, **options)

    return parse_known_args


def _satisfied(parser: argparse.ArgumentParser, line: CommandLine) -> list[str]:
    """Give each required argument a default; return the subcommand to parse, if one is required."""
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
        if action.default in (None, "") and not action.required and action.nargs != 0:
            _set_by_file(action, line)
        positional = not action.option_strings
        if action.required or (positional and action.nargs not in ("?", "*")):
            several = action.nargs in ("+", "*") or isinstance(action.nargs, int)
            value = line.invent(action.dest, action.type, tuple(action.choices or ()))
            if action.default is None:
                action.default = [value] * (action.nargs if isinstance(action.nargs, int) else 1) if several else value
            action.required = False
            if positional:
                action.nargs = "*" if several else "?"
    return commands


def _set_by_file(action: argparse.Action, line: CommandLine) -> None:
    """Set an option without a default to the configuration file that it names, if there is one."""
    file = _configuration_named(action.dest, line.file)
    if file is None:
        line.unset.append(action.dest)
    else:
        line.invented.append(action.dest)
        action.default = file


def _value(name: str, kind: Any, choices: Sequence[Any], file: str) -> Any:
    """Return a value for an argument: the first of its choices, of the words that the program compares it with, an
    existing configuration file, or a value of its type that its name suggests.
    """
    if choices:
        return choices[0]
    if kind is None or kind is str:
        return next(_compared_with(name, file), None) or _configuration_named(name, file) or name
    number = number_named(name)
    for text in (str(number), "0", name):
        try:
            return kind(text) if callable(kind) else name
        except Exception:
            continue
    return None


_NAMES_FILE = re.compile(r"(^|_)(conf|config|configuration|cfg|settings|options?|opt|yaml|yml|json|toml)s?(_|$)")
_SUFFIXES = (".yaml", ".yml", ".json", ".toml")
MAX_FOLDERS = 60
"""The most folders next to a script that are searched for configuration files."""
MAX_CONFIGURATION = 100_000
"""The size in bytes of the largest such file that is read."""


def _configuration_named(name: str, file: str) -> str | None:
    """Return the configuration file below the script's folder that has the most names in the script, or None."""
    if not _NAMES_FILE.search(name):
        return None
    try:
        words = set(re.findall(r"\w+", files.read_python(file)))
    except (OSError, ValueError):
        return None
    best: tuple[int, str] | None = None
    for _, (folder, inner, names) in zip(range(MAX_FOLDERS), os.walk(_started_in(file)), strict=False):
        inner[:] = sorted(part for part in inner if not part.startswith("."))
        for candidate in sorted(part for part in names if part.endswith(_SUFFIXES)):
            path = os.path.join(folder, candidate)
            count = len(words & set(_keys(path)))
            if count and (best is None or count > best[0]):
                best = count, path
    return best[1] if best is not None else None


def _keys(path: str) -> list[str]:
    try:
        text = files.read_text(path, limit=MAX_CONFIGURATION)
    except (OSError, ValueError):
        return []
    return re.findall(r"""^[\s{,"']*(\w+)["']?\s*[:=]""", text, re.MULTILINE)


def _started_in(file: str) -> str:
    """Return the folder to start a script in: the nearest above it with a file that the script names, or its own."""
    folder = os.path.dirname(file) or "."
    try:
        text = files.read_python(file)
    except (OSError, ValueError):
        return folder if os.path.isdir(folder) else "."
    named = [path for path in re.findall(r"""["']([\w.-]+(?:/[\w.-]+)*\.\w+)["']""", text) if ".." not in path]
    above = [folder, *map(str, Path(folder).parents)][:4]
    return next((place for place in above if any(os.path.isfile(os.path.join(place, n)) for n in named)), folder)


def _compared_with(name: str, file: str) -> Iterator[str]:
    """Yield the words that a program compares an attribute with: `args.task == "train"`, `args.task in ("train",
    "test")`.
    """
    try:
        tree = ast.parse(files.read_python(file))
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == name:
            constants = (
                part for other in node.comparators for part in ast.walk(other) if isinstance(part, ast.Constant)
            )
            yield from (constant.value for constant in constants if isinstance(constant.value, str))


def flags_parsed() -> None:
    """Make flags of `absl`, if it was imported, return their defaults before a program has parsed them."""
    for name, module in list(sys.modules.items()):
        holder = getattr(module, "FLAGS", None) if name.endswith("flags") else None
        parsed = inspect.getattr_static(holder, "mark_as_parsed", None) if holder is not None else None
        if parsed is not None and holder is not None:
            holder.mark_as_parsed()
