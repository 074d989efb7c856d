"""What PyTorch itself warns of while the target runs, at the expression that it warns of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any

import torch

from fx_lsp.model import Remark
from fx_lsp.tracer.compat import FakeTensor
from fx_lsp.tracer.source.provenance import Chain

_KINDS = UserWarning, FutureWarning, DeprecationWarning


@contextmanager
def warnings_told(
    chain: Callable[[], Chain], operands: Callable[[], Iterable[torch.Tensor]], tell: Callable[[Remark, bool], None]
) -> Generator[None, None, None]:
    """Inside, tell of each warning of PyTorch's, and whether it is about the shapes of the call's `operands`.

    `chain` gives the user's expressions of a warning, none of others' warnings. Those that a call gives each time, and
    those that it gives once, are told alike. A warning about fake tensors is never told: only the tracer makes them.
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
            is_of_shapes = any(str(operand.shape) in text for operand in operands())
            tell(Remark(f"PyTorch warns: {text}", spans[0], severity, code="pytorch-warning"), is_of_shapes)

        warnings.showwarning = told
        yield
