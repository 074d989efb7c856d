"""Write kernels: from values to statements to text."""
