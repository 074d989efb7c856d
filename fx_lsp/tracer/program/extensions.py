"""Handle packages whose compiled part cannot be loaded here, because it was built for another torch or for a GPU.

The rest of such a package is Python that runs; only its operators are missing, which fake kernels refer to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fx_lsp.tracer.program.paths import is_installed


def tolerate_unloaded_operators() -> None:
    """Ignore a fake kernel of an installed package if its operator is missing.

    In the user's own code it stays an error.
    """
    library: Any = torch.library.Library
    register: Callable[..., Any] | None = getattr(library, "_register_fake", None)
    if register is None:
        return

    def register_if_loaded(self: Any, op_name: Any, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
        file = getattr(getattr(fn, "__code__", None), "co_filename", "")
        if is_installed(file) and not _is_loaded(self, op_name):
            return None
        return register(self, op_name, fn, *args, **options)

    library._register_fake = register_if_loaded


def _is_loaded(library: Any, operator: Any) -> bool:
    """Return True if an operator has a schema, in any overload."""
    name = operator._name if isinstance(operator, torch._ops.OpOverload) else str(operator)
    name = name if "::" in name else f"{library.ns}::{name}"
    return bool(torch._C._jit_get_schemas_for_operator(name.partition(".")[0]))
