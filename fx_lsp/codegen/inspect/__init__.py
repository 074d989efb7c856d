"""Compile a kernel without a GPU, and inspect the code of Triton and its assemblers."""
