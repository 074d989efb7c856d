"""What PyTorch itself warns of while the target runs, at the expression that it warns of."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from fx_lsp.model import Remark
from fx_lsp.tracer.source.provenance import Chain

_KINDS = UserWarning, FutureWarning, DeprecationWarning


@contextmanager
def warnings_told(chain: Callable[[], Chain], tell: Callable[[Remark], None]) -> Generator[None, None, None]:
    """Inside, tell of each warning of PyTorch's; `chain` gives the user's expressions of it, none of others' warnings.

    Those that a call gives each time, and those that it gives once, are told alike.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        show: Callable[..., Any] = warnings.showwarning

        def told(message: Warning | str, category: type[Warning], *rest: Any, **options: Any) -> None:
            spans = chain() if issubclass(category, _KINDS) else ()
            if not spans:
                show(message, category, *rest, **options)
                return
            text = " ".join(str(message).split()).rstrip(".")
            severity = "warning" if issubclass(category, UserWarning) else "information"
            tell(Remark(f"PyTorch warns: {text}", spans[0], severity, code="pytorch-warning"))

        warnings.showwarning = told
        yield
