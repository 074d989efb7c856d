"""Track values of tensors: constants, checks that pass, and symbols for unknown values."""
