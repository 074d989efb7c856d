"""Load a generated file: its kernels, the original, and its random arguments."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch

from fx_lsp.bench.variant.comparison import Function, Make, NotAccepted, accepted

ABSENT = "It is not compared with the original: "
"""The beginning of the sentence in a file's docstring that states why there is no comparison."""


class NotComparable(Exception):
    """The file does not contain the original; the message is a sentence with the reason."""


@dataclass(frozen=True)
class BenchmarkSubject:
    """Hold the contents of a generated file.

    `kernels` is None if the file was opened without. `outside` maps each tensor that the original reads itself,
    although it is an argument of the kernels, to the original without such arguments. `draw(seed)` returns fresh
    positional and other arguments, `make(seed)` those that the original accepts; `signature` names them. `sizes` are
    the sizes that may be any, with those of the arguments. `originals` are the original's functions.
    """

    kernels: Function | None
    reference: Function
    outside: Mapping[str, Function]
    draw: Make
    make: Make
    signature: inspect.Signature
    originals: tuple[FunctionType, ...]
    module: ModuleType
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])

    def with_sizes(self, **sizes: int) -> Make:
        """Return a function like `make` for other sizes. Raises NotAccepted if the original rejects them."""
        return accepted(self.reference, self.signature, partial(self.draw, **sizes))


def opened(path: Path, device: str, kernels: bool) -> BenchmarkSubject:
    """Return the generated file at `path`.

    Without `kernels`, nothing of Triton is imported or defined. Raises NotComparable, and the file's exceptions.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    described = ast.get_docstring(tree) or ""
    name = next(iter(described.split()), "")
    own = {helper: f"{helper}_" if helper == name else helper for helper in ("original", "arguments")}
    defined = {s.name for s in tree.body if isinstance(s, ast.FunctionDef)}
    if not defined.issuperset(own.values()):
        reason = re.search(rf"{ABSENT}(.*)\.$", described, re.MULTILINE)
        raise NotComparable(f"{ABSENT}{reason[1] if reason else 'the file has none'}.")
    module = ModuleType(f"fx_lsp_{path.stem}_{path.parent.name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    names = vars(module)
    definitions = [s for s in tree.body if not isinstance(s, ast.If) and (kernels or not _needs_triton(s, defined))]
    exec(compile(ast.Module(definitions, []), str(path), "exec", dont_inherit=True), names)
    original, arguments = (names.pop(helper) for helper in own.values())  # kernels must not call the original
    with torch.device(device):
        reference, objects = _reference(original())
    draw: Any = partial(arguments, device=device, **objects)
    outside = _outside(reference)
    signature = inspect.signature(names[name])
    try:
        make = accepted(reference, signature, draw)
    except NotImplementedError as error:
        raise NotComparable(f"{ABSENT}{error}.") from error
    except NotAccepted as error:
        raise NotComparable(f"{ABSENT}the original fails with random arguments: {error}.") from error
    originals = tuple(_originals(inspect.unwrap(reference), objects))
    function = names[name] if kernels else None
    return BenchmarkSubject(function, reference, outside, draw, make, signature, originals, module, _sizes(arguments))


def _reference(original: Any) -> tuple[Function, dict[str, Any]]:
    """Return the original function, and the objects of its file that random arguments are created with."""
    return original if isinstance(original, tuple) else (original, {})


def _outside(reference: Function) -> dict[str, Function]:
    """Return the original by each tensor that it reads itself: a wrapper has these as further arguments."""
    inner = inspect.unwrap(reference)
    parameters = inspect.signature(reference, follow_wrapped=False).parameters.values()
    return {} if inner is reference else {p.name: inner for p in parameters if p.kind is p.KEYWORD_ONLY}


def _sizes(arguments: Function) -> dict[str, int]:
    parameters = inspect.signature(arguments).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


def is_interpreted(module: ModuleType) -> bool:
    """Return True if Triton interprets the module's kernels instead of compiling them."""
    values = [v for value in vars(module).values() for v in (value, getattr(value, "fn", None))]  # in an autotuner
    return any(type(value).__name__ == "InterpretedFunction" for value in values)


def _needs_triton(statement: ast.stmt, defined: Collection[str]) -> bool:
    """Return True if a statement is for kernels only: functions for arguments and comparison have no decorators, and
    only lists of configurations call functions that the file defined.
    """
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return "triton" in ast.unparse(statement)
    if isinstance(statement, ast.Assign):
        calls = [n.func for n in ast.walk(statement.value) if isinstance(n, ast.Call)]
        return any(isinstance(f, ast.Name) and f.id in defined for f in calls)
    return isinstance(statement, ast.ClassDef) or (
        isinstance(statement, ast.FunctionDef) and bool(statement.decorator_list)
    )


def _originals(reference: Function, objects: Mapping[str, Any]) -> Iterator[FunctionType]:
    """Yield the original, if it is a function or a module's method."""
    for function in (reference, getattr(type(objects.get("module")), "forward", None)):
        if isinstance(function, FunctionType) and not function.__module__.startswith("torch."):
            yield function
