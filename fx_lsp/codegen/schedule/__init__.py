"""Decide which operations share a kernel, how each kernel is tiled, and which repeated iterations become a loop."""
