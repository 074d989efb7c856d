"""Set the conditions of a trace besides its inputs: symbolic sizes, values of tensors, and the answers of
`torch.compiler`.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

from fx_lsp.tracer.compat import FakeTensorMode, ShapeEnv, as_if_compiling, enable_python_dispatcher
from fx_lsp.tracer.run.values.drawn import drawing
from fx_lsp.tracer.run.values.symbols import Symbols


@dataclass(frozen=True)
class Conditions:
    """Hold conditions: with `symbols`, sizes may be names; with `compiling`, the code believes that it is being
    compiled; with `drawn`, every tensor has random values.
    """

    symbols: Symbols | None = None
    compiling: bool = False
    drawn: bool = False


@contextmanager
def under(mode: FakeTensorMode, conditions: Conditions) -> Generator[None, None, None]:
    """Run fake tensors of `mode` under those conditions; without any this has no effect."""
    if conditions.symbols is None:
        with drawing() if conditions.drawn else nullcontext():
            yield
        return
    with ExitStack() as stack:
        stack.enter_context(with_shape_env(mode, conditions.symbols))
        if conditions.compiling:
            stack.enter_context(as_if_compiling())
        yield


@contextmanager
def with_shape_env(mode: FakeTensorMode, shape_env: ShapeEnv) -> Generator[None, None, None]:
    """Run fake tensors of `mode` whose sizes may be symbols of `shape_env`."""
    before = mode.shape_env, mode.cache_enabled
    with enable_python_dispatcher():
        # The cache would return another trace's symbols, and omit its guards on them.
        mode.shape_env, mode.cache_enabled = shape_env, False
        try:
            yield
        finally:
            mode.shape_env, mode.cache_enabled = before
