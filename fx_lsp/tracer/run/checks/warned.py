"""Report PyTorch's own warnings during the run, at the expression of each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import torch

from fx_lsp.messages.findings import PYTORCH_WARNS
from fx_lsp.model import Remark
from fx_lsp.tracer.compat import FakeTensor
from fx_lsp.tracer.source.provenance import Chain

_KINDS = UserWarning, FutureWarning, DeprecationWarning


@contextmanager
def warnings_told(
    chain: Callable[[], Chain], operands: Callable[[], Iterable[torch.Tensor]], tell: Callable[[Remark, bool], None]
) -> Generator[None, None, None]:
    """Report, inside, each warning of PyTorch, and whether it depends on the shapes of the call's `operands`.

    Warnings on data-dependent sizes are ignored, and those on fake tensors, which only the tracer creates. `chain`
    returns the user's expressions of a warning, none for warnings of other libraries. Warnings that are normally shown
    once are reported like the others.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        show: Callable[..., Any] = warnings.showwarning

        def told(message: Warning | str, category: type[Warning], *rest: Any, **options: Any) -> None:
            is_about_tracing = FakeTensor.__name__ in str(message)
            spans = chain() if issubclass(category, _KINDS) and not is_about_tracing else ()
            if not spans:
                show(message, category, *rest, **options)
                return
            text = " ".join(str(message).split()).rstrip(".")
            severity = "warning" if issubclass(category, UserWarning) else "information"
            shapes = [operand.shape for operand in operands() if str(operand.shape) in text]
            if any(_depends_on_values(shape) for shape in shapes):
                return
            tell(PYTORCH_WARNS.remark(spans[0], severity=severity, warning=text), bool(shapes))

        warnings.showwarning = told
        yield


def _depends_on_values(shape: torch.Size) -> bool:
    """Return True if a size depends on the values of tensors, and is therefore unknown."""
    return any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in shape)
