"""Runs in the user's interpreter, next to torch: inputs, capture, provenance. Imports torch and the standard library only."""
