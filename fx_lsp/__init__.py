"""fx-lsp: a language server for people who write PyTorch."""

__version__ = "0.1.0"
