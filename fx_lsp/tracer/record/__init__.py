"""Runs inside the user's program under `fx-lsp record`, and notes what the project's functions are called with."""
