"""Values to statements to text: the kernels."""
