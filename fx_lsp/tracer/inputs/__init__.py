"""Resolve the inputs of a target: what is written down first, search last."""
