"""The data that kernels are made from and of: indices, values, tiles, loops, text."""
