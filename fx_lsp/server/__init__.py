"""The language server. Only this package knows LSP."""
