"""Resolve the inputs of a target: written ones first, guessed ones last."""
