"""Build the file of Triton kernels for a target: parameters, comparison with the original, and compiled forms."""
