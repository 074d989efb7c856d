"""Which operations share a kernel, how it is tiled, and which of its iterations are a loop."""
