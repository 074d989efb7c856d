"""The data structures of kernels: indices, values, tiles, loops, statements."""
