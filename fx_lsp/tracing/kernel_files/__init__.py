"""Files of kernels that a user keeps: what they were generated as, and a merge with what is generated now."""
