"""The only place that knows LSP."""
