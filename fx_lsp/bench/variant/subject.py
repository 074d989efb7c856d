"""Load a generated file: its kernels, the original, and its functions for arguments and comparison."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

Function = Callable[..., Any]


class NotComparable(Exception):
    """The file does not contain the original; the message is a sentence with the reason."""


@dataclass(frozen=True)
class BenchmarkSubject:
    """Hold the contents of a generated file.

    `kernels` is None if the file was opened without. `outside` maps each tensor that the original reads itself,
    although it is an argument of the kernels, to the original without such arguments. `make(seed)` returns fresh
    positional and other arguments; `results`, `judged`, `doubled` and `tensors` are the file's own; `signature` names
    its arguments. `codes` is the original's code.
    """

    kernels: Function | None
    reference: Function
    outside: Mapping[str, Function]
    make: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]
    results: Function
    judged: Callable[[Any, Any, Any], tuple[bool, float, float]]
    doubled: Callable[[Any], Any]
    tensors: Callable[[Any, str], Iterator[tuple[str, torch.Tensor]]]
    signature: Function
    codes: frozenset[CodeType]
    module: ModuleType


def opened(path: Path, name: str, device: str, kernels: bool) -> BenchmarkSubject:
    """Return the generated file at `path`, whose kernels are launched by the function `name`.

    Without `kernels`, nothing of Triton is imported or defined. Raises NotComparable, and the file's exceptions.
    """
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    main = next((s for s in tree.body if isinstance(s, ast.If) and "__main__" in ast.unparse(s.test)), None)
    compare = _comparison(main)
    if main is None or compare is None:
        said = re.search(r'print\("not compared with the original: (.*)"\)', text)
        raise NotComparable(f"It is not compared with the original: {said[1] if said else 'the file has none'}.")
    module = ModuleType(f"fx_lsp_{path.stem}_{path.parent.name}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    names = vars(module)
    definitions = [s for s in tree.body if s is not main and (kernels or not _needs_triton(s))]
    exec(compile(ast.Module(definitions, []), str(path), "exec", dont_inherit=True), names)
    before = main.body[: main.body.index(compare)]
    making = [s for s in before if not _assigns(s, "device") and not isinstance(s, ast.If)]

    def own(helper: str) -> Any:
        return names[f"{helper}_" if helper == name else helper]  # the file's helpers make way for the user's function

    apart = dict(names, device=device)  # kernels must not access the original: it is not in their module
    try:
        exec(compile(ast.Module(making, []), str(path), "exec", dont_inherit=True), apart)
    except SystemExit as error:
        raise NotComparable(f"It is not compared with the original: {error}.") from error
    assert isinstance(compare.value, ast.Call)
    arguments = [apart[a.id] for a in compare.value.args if isinstance(a, ast.Name)]
    for hidden in {"original", "original_"} - {name}:
        names.pop(hidden, None)
    return BenchmarkSubject(
        arguments[0] if kernels else None,
        arguments[1],
        _outside(arguments[1], apart),
        arguments[2],
        own("results"),
        own("judged"),
        own("doubled"),
        own("tensors"),
        arguments[0],
        frozenset(_codes(apart)),
        module,
    )


def _outside(reference: Function, names: dict[str, Any]) -> dict[str, Function]:
    if reference is names.get("reference"):
        return {}
    parameters = inspect.signature(reference).parameters.values()
    return {p.name: names["reference"] for p in parameters if p.kind is p.KEYWORD_ONLY}


def is_interpreted(module: ModuleType) -> bool:
    """Return True if Triton interprets the module's kernels instead of compiling them."""
    values = [v for value in vars(module).values() for v in (value, getattr(value, "fn", None))]  # in an autotuner
    return any(type(value).__name__ == "InterpretedFunction" for value in values)


def _comparison(main: ast.If | None) -> ast.Assign | None:
    """Return the statement `wrong = compare(kernels, original, make)` at a file's end, or None."""
    for statement in main.body if main is not None else ():
        if _assigns(statement, "wrong") and isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            return statement
    return None


def _assigns(statement: ast.stmt, name: str) -> bool:
    return isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name


def _needs_triton(statement: ast.stmt) -> bool:
    """Return True if a statement is for kernels only: functions for arguments and comparison have no decorators."""
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return "triton" in ast.unparse(statement)
    return isinstance(statement, ast.ClassDef) or (
        isinstance(statement, ast.FunctionDef) and bool(statement.decorator_list)
    )


def _codes(names: dict[str, Any]) -> Iterator[CodeType]:
    """Yield the code of the original, if it is a function or a module's method."""
    module = names.get("module")
    for function in (names.get("reference"), getattr(type(module), "forward", None)):
        if isinstance(function, FunctionType) and not function.__module__.startswith("torch."):
            yield function.__code__
