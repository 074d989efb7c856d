"""The file around the kernels: operators, the autograd function, host code, format."""
