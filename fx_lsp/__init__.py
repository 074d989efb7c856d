"""fx-lsp: a language server for people who write PyTorch, and its engine as a library.

Importing this package imports neither torch nor the server; the functions of the library come with `fx_lsp.api`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fx_lsp.api import Traced, generate_forward_and_backward_graph, generate_inference_graph, trace

__version__ = "0.1.0"
__all__ = ["Traced", "__version__", "generate_forward_and_backward_graph", "generate_inference_graph", "trace"]

if not TYPE_CHECKING:  # a type checker would accept any attribute

    def __getattr__(name):
        if name in __all__:
            return getattr(import_module("fx_lsp.api"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
