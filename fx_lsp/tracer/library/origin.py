"""Find the origin of a callable: its file and its name there; and the function under its wrappers."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import nn

from fx_lsp.tracer.run.callables import innermost
from fx_lsp.tracer.source.provenance import Sources


@dataclass(frozen=True)
class Origin:
    """Hold the place of a callable's definition: a file or notebook cell, its qualified name there, and the whole text.

    `definition` is the code that runs: `Block.forward` of the module `Block`.
    """

    file: str
    name: str
    definition: str
    lines: tuple[str, ...] = ()
    tree: ast.Module = field(default_factory=lambda: ast.Module([], []))

    @property
    def target(self) -> str:
        """Return `file.py::name`."""
        return f"{self.file}::{self.name}"


def origin_of(fn: Any) -> Origin:
    """Return the origin of `fn`, of the forward of a module, or of the call of an object."""
    inner = innermost(fn)
    name: str | None = getattr(inner, "__qualname__", None)
    method = "" if name is not None else "forward" if isinstance(inner, nn.Module) else "__call__"
    plain = innermost(getattr(type(inner), method, None)) if method else inner  # TorchScript's class has no forward
    name = (name or type(inner).__qualname__).replace("<locals>.", "")
    definition = f"{name}.{method}" if method else name
    code = getattr(plain, "__code__", None)
    if code is None:
        return Origin(str(getattr(inner, "__module__", type(inner).__module__)), name, definition)
    lines = linecache.getlines(code.co_filename, getattr(plain, "__globals__", None))
    try:
        tree = ast.parse("".join(lines), code.co_filename)
    except (SyntaxError, ValueError):
        tree = ast.Module([], [])
    return Origin(code.co_filename, name, definition, tuple(line.rstrip("\n") for line in lines), tree)


class SessionSources(Sources):
    """Treat all code typed into a session as the user's own, in any cell."""

    def __init__(self, origin: Origin) -> None:
        super().__init__(origin.file, _package_of(origin.file))

    def _rank(self, filename: str) -> int:
        return 0 if filename.startswith(("<ipython-input", "<python-input", "<stdin>")) else super()._rank(filename)


def _package_of(file: str) -> str | None:
    """Return the folder of the installed package of `file`, or None."""
    for kind in ("site-packages", "dist-packages"):
        root, folder, inside = file.partition(f"{os.sep}{kind}{os.sep}")
        if folder and os.sep in inside:
            return f"{root}{folder}{inside.partition(os.sep)[0]}"
    return None


def uncompiled(fn: Any) -> Any:
    """Return the function or module under `torch.compile`, or `fn` itself."""
    for name in ("_orig_mod", "_torchdynamo_orig_callable"):
        fn = getattr(fn, name, fn)
    return fn


def module_of(fn: Any) -> nn.Module | None:
    """Return the module that `fn` is, or is a method of; None for any other."""
    while isinstance(fn, partial):
        fn = fn.func
    owner = fn if isinstance(fn, nn.Module) else getattr(fn, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


def parameter_names(fn: Callable[..., Any], count: int) -> tuple[str, ...]:
    """Return the names of the first `count` positional parameters: `x`, `xs[0]`, or `arg0` if `fn` has no signature."""
    try:
        parameters = list(inspect.signature(getattr(fn, "forward", fn)).parameters.values())
    except (TypeError, ValueError):
        return tuple(f"arg{i}" for i in range(count))
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    spread = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")
    return (*names, *(f"{spread}[{i}]" for i in range(count - len(names))))[:count]
