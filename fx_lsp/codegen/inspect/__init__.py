"""What Triton and its assemblers make of a kernel, and what that says."""
