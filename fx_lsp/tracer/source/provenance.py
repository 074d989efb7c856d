"""Track the source expressions of operations.

While the target runs, a `TorchFunctionMode` sees every call into torch, walks the Python stack outwards and turns each
frame of the user's code into the span of the expression it is evaluating. The chain of spans (innermost first) is
interned under a number, which FX nodes carry through AOTAutograd and the partitioner.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import nn
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode

from fx_lsp.model import Span
from fx_lsp.tracer.compat import HAS_COLUMNS, annotate, kept_meta, with_meta

KEY = "fx_lsp"
"""The annotation under which FX nodes carry the number of their chain."""

BACKWARD = "fx_lsp_backward"
"""The metadata key under which nodes of a user's `backward` carry it."""

Chain = tuple[Span, ...]
MODULE_CALL: CodeType = nn.Module._call_impl.__code__
"""The code that runs in each call of a module."""


class NodeOrigin(NamedTuple):
    """Hold the origin of an operation: the user's expressions, innermost first, and the submodule, "" for the whole."""

    chain: Chain = ()
    module: str = ""


_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_STDLIB = tuple({os.path.abspath(sysconfig.get_paths()[k]) + os.sep for k in ("stdlib", "platstdlib")})


class Sources:
    """Distinguish the user's own code from libraries, and convert frames to spans.

    Own code is neither torch, the standard library nor installed in site-packages; for an installed target, its whole
    top-level package (`package_dir`) is own code.
    """

    def __init__(self, file: str, package_dir: str | None) -> None:
        self.file = file
        self._package_dir = package_dir + os.sep if package_dir else None
        self._ranks: dict[str, int] = {}
        self._positions: dict[CodeType, list[tuple[int | None, int | None, int | None, int | None]]] = {}
        self.origins: list[NodeOrigin] = []
        self._numbers: dict[NodeOrigin, int] = {}
        self._modules: dict[int, str] = {}

    def rank(self, filename: str) -> int:
        """Return 0 for the user's own code, 1 for a third-party library, 2 for torch, Python's own code and fx-lsp."""
        rank = self._ranks.get(filename)
        if rank is None:
            rank = self._ranks[filename] = self._rank(filename)
        return rank

    def _rank(self, filename: str) -> int:
        if filename == self.file:
            return 0
        if filename.startswith((_TORCH, _OURS, "<")):
            return 2
        if self._package_dir and filename.startswith(self._package_dir):
            return 0
        if f"{os.sep}site-packages{os.sep}" in filename or f"{os.sep}dist-packages{os.sep}" in filename:
            return 1
        return 2 if filename.startswith(_STDLIB) else 0

    def chain(self, frame: FrameType | None, stop: CodeType) -> Chain:
        """Return the spans of the user's expressions from `frame` outwards, up to the frame that runs `stop`.

        If none are in the user's own code, returns those in libraries.
        """
        own: list[Span] = []
        library: list[Span] = []
        while frame is not None and frame.f_code is not stop:
            rank = self.rank(frame.f_code.co_filename)
            if rank == 0:
                own.append(self.span(frame.f_code, frame.f_lasti, frame.f_lineno))
            elif rank == 1 and not own:
                library.append(self.span(frame.f_code, frame.f_lasti, frame.f_lineno))
            frame = frame.f_back
        return tuple(own or library)

    def name_modules(self, modules: Mapping[str, nn.Module]) -> None:
        """Register the modules of a call and their submodules, by their paths, for `module`."""
        for prefix, module in modules.items():
            for path, part in module.named_modules(prefix=prefix):
                self._modules.setdefault(id(part), path)

    def module(self, frame: FrameType | None, stop: CodeType) -> str:
        """Return the path of the innermost registered module called from `frame` outwards; "" for none."""
        while self._modules and frame is not None and frame.f_code is not stop:
            if frame.f_code is MODULE_CALL and (path := self._modules.get(id(frame.f_locals.get("self")))) is not None:
                return path
            frame = frame.f_back
        return ""

    def number(self, chain: Chain, module: str = "") -> int:
        """Return the number of an operation's origin, interned in `origins`."""
        origin = NodeOrigin(chain, module)
        number = self._numbers.get(origin)
        if number is None:
            number = self._numbers[origin] = len(self.origins)
            self.origins.append(origin)
        return number

    def span(self, code: CodeType, lasti: int, lineno: int | None) -> Span:
        """Return the expression of the instruction at byte offset `lasti` of `code`.

        It is a whole line (columns 0 to 0) if Python keeps no columns.
        """
        line = lineno or code.co_firstlineno
        if HAS_COLUMNS:
            positions = self._positions.get(code)
            if positions is None:
                positions = self._positions[code] = list(code.co_positions())  # pyright: ignore[reportAttributeAccessIssue]
            start, end, col, end_col = positions[lasti // 2] if 0 <= lasti // 2 < len(positions) else (None,) * 4
            if start is not None and end is not None and col is not None and end_col is not None:
                return Span(code.co_filename, start, col, end, end_col)
        return Span(code.co_filename, line, 0, line, 0)

    def traceback_chain(self, traceback: TracebackType | None) -> Chain:
        """Return the spans of the user's own code in a traceback, innermost first; of libraries if there are none."""
        own: list[Span] = []
        library: list[Span] = []
        while traceback is not None:
            code = traceback.tb_frame.f_code
            rank = self.rank(code.co_filename)
            if rank < 2:
                (own if rank == 0 else library).append(self.span(code, traceback.tb_lasti, traceback.tb_lineno))
            traceback = traceback.tb_next
        return tuple(reversed(own or library))


def _metadata_getters() -> frozenset[Any]:
    names = ("shape", "dtype", "device", "ndim", "layout", "requires_grad", "is_leaf", "grad_fn", "names", "itemsize")
    getters = [getattr(torch.Tensor, n).__get__ for n in names if hasattr(getattr(torch.Tensor, n, None), "__get__")]
    methods = [torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.is_contiguous, torch.Tensor.stride]
    return frozenset([*getters, *methods])


METADATA = _metadata_getters()
"""Calls that only read a tensor's metadata: they add no operation to a graph."""


class Annotate(TorchFunctionMode):
    """Mark the FX nodes of every torch call with the chain of the user's expressions it came from.

    `mark` returns a context that attaches a number to the nodes traced inside.
    """

    def __init__(
        self, sources: Sources, stop: CodeType, mark: Callable[[int], AbstractContextManager[None]] | None = None
    ) -> None:
        super().__init__()
        self._sources, self._stop = sources, stop
        self._mark = mark or _annotate_forward

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in METADATA:
            return func(*args, **(kwargs or {}))
        frame, sources = sys._getframe(1), self._sources
        with self._mark(sources.number(sources.chain(frame, self._stop), sources.module(frame, self._stop))):
            return func(*args, **(kwargs or {}))


def _annotate_forward(number: int) -> AbstractContextManager[None]:
    return annotate({KEY: number})


@contextmanager
def annotated_backwards(sources: Sources) -> Generator[None, None, None]:
    """Mark operations in the `backward` of the user's `autograd.Function`s inside, too, with `BACKWARD`.

    AOTAutograd copies the annotations of forward nodes over those of their backward nodes.
    """
    original = BackwardCFunction.apply

    def apply(self: Any, *args: Any) -> Any:
        with Annotate(sources, apply.__code__, lambda number: with_meta(BACKWARD, number)):
            return original(self, *args)

    with mock.patch.object(BackwardCFunction, "apply", apply), kept_meta(BACKWARD):
        yield
