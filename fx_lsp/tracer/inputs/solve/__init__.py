"""Derive new plans from a failed run: by constraints of operations, and by error messages."""
