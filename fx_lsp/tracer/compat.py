"""What differs between versions of torch, found by capability; the only file that knows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import sympy  # pyright: ignore[reportMissingTypeStubs]
import torch
import torch.fx.traceback as fx_traceback
from sympy.printing.str import StrPrinter  # pyright: ignore[reportMissingTypeStubs]
from torch._dispatch.python import enable_python_dispatcher as enable_python_dispatcher
from torch._dynamo.source import ConstantSource as ConstantSource
from torch._functorch.aot_autograd import aot_function as aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition as min_cut_partition
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, GuardOnDataDependentSymNode, ShapeEnv
from torch.utils._sympy.printers import PythonPrinter as SymbolPrinter

try:
    from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
except ImportError:  # merged into one class by a later torch
    from torch._subclasses.fake_tensor import UnsupportedFakeTensorException as DataDependentOutputException

    DynamicOutputShapeException = DataDependentOutputException

__all__ = [
    "DATA_DEPENDENT",
    "HAS_ANNOTATE",
    "HAS_COLUMNS",
    "ConstantSource",
    "DimDynamic",
    "FakeTensor",
    "FakeTensorMode",
    "ShapeEnv",
    "StrPrinter",
    "SymbolPrinter",
    "annotate",
    "annotation",
    "aot_function",
    "as_if_compiling",
    "descriptor",
    "enable_python_dispatcher",
    "min_cut_partition",
    "preserve_node_meta",
    "sympy",
    "without_compilation",
]

HAS_COLUMNS = sys.version_info >= (3, 11)
"""Whether frames know the column of the expression they run."""

DATA_DEPENDENT: tuple[type[BaseException], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
)
"""What torch raises when code asks a fake tensor for a value."""

_annotate: Callable[[dict[str, Any]], AbstractContextManager[None]] | None = getattr(fx_traceback, "annotate", None)

HAS_ANNOTATE = _annotate is not None
"""Whether FX nodes carry annotations through AOTAutograd; without, only `stack_trace` lines are known."""


def annotate(data: dict[str, Any]) -> AbstractContextManager[None]:
    """Attach `data` to every FX node that is traced inside; does nothing where torch cannot."""
    return _annotate(data) if _annotate is not None else nullcontext()


def preserve_node_meta() -> AbstractContextManager[Any]:
    """Keep annotations and stack traces on the nodes of a trace."""
    return fx_traceback.preserve_node_meta()


def without_compilation() -> AbstractContextManager[Any]:
    """Do not generate Python for graphs that nobody runs; does nothing where torch has no lazy graph modules."""
    try:
        from torch.fx._lazy_graph_module import _use_lazy_graph_module
    except ImportError:
        return nullcontext()
    return _use_lazy_graph_module(True)


def annotation(node: torch.fx.Node, key: str) -> Any:
    """The value that `annotate` attached to `node` under `key`, or None."""
    return (node.meta.get("custom") or {}).get(key)


def descriptor(node: torch.fx.Node) -> Any:
    """AOTAutograd's description of a placeholder or of an output node's values, or None where torch has none."""
    return node.meta.get("desc")


@contextmanager
def as_if_compiling() -> Generator[None, None, None]:
    """Inside, `torch.compiler.is_compiling()` and `is_exporting()` are true, as far as this torch has them."""
    flags = [f for f in ("_is_compiling_flag", "_is_exporting_flag") if hasattr(torch.compiler, f)]
    before = {flag: getattr(torch.compiler, flag) for flag in flags}
    try:
        for flag in flags:
            setattr(torch.compiler, flag, True)
        yield
    finally:
        for flag, value in before.items():
            setattr(torch.compiler, flag, value)
