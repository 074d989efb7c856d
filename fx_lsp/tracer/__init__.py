"""Trace targets in the user's interpreter: inputs, capture, provenance. Imports torch and the standard library only."""
