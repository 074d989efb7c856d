"""The file of Triton kernels for a target: parameters, comparison with the original, and what it compiles to."""
