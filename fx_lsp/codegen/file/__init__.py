"""Write the file around the kernels: operators, the autograd function, host code, and formatting."""
