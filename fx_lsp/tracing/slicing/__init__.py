"""Slice a file to the part that a target needs, with every position kept."""
