"""Set environment variables that code needs: those of a launcher of processes, and others when they are read."""

from __future__ import annotations

import ast
import linecache
import os
import traceback

from fx_lsp.tracer.notes import notes
from fx_lsp.tracer.source.likely_numbers import number_named

LAUNCHED = {
    "RANK": "0",
    "LOCAL_RANK": "0",
    "WORLD_SIZE": "1",
    "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}
"""The variables that a launcher of processes sets."""


def is_set_for(error: BaseException | None) -> bool:
    """Set a missing environment variable and return True, if that is why code failed."""
    name, file = _missing(error)
    if not name or name in os.environ:
        return False
    if name in LAUNCHED:
        launch()
    else:
        os.environ[name] = _value_read(name, file)
        notes().add(f"the environment variable {name} is not set; assumed: {os.environ[name]!r}")
    return True


def launch() -> None:
    """Set the variables of a launcher of processes."""
    os.environ.update({name: value for name, value in LAUNCHED.items() if name not in os.environ})


def _missing(error: BaseException | None) -> tuple[str, str]:
    """Return the name of the unset variable, and the file that reads it; "" for another error."""
    if not isinstance(error, KeyError):
        return "", ""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if len(frames) < 2 or frames[-1].f_code is not type(os.environ).__getitem__.__code__:
        return "", ""
    return str(error.args[0]), frames[-2].f_code.co_filename


def _value_read(name: str, file: str) -> str:
    """Return the value that a file compares a variable with, the words that it searches in it, or a likely number."""
    words: dict[str, None] = {}
    for node in ast.walk(ast.parse("".join(linecache.getlines(file)))):
        match node:
            case ast.Compare(read, [ast.Eq() | ast.NotEq()], [ast.Constant(str(value))]) if _reads(read, name):
                return value
            case ast.Compare(ast.Constant(str(value)), [ast.In() | ast.NotIn()], [read]) if _reads(read, name):
                words[value] = None
            case ast.Call(ast.Name("int" | "float"), [read]) if _reads(read, name):
                return str(number_named(name.lower()))
            case _:
                pass
    return " ".join(words) or "1"


def _reads(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == name
