"""Run inside the user's program under `fx-lsp record`, and record the arguments of the project's functions."""
