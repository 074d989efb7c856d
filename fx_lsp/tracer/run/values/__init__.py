"""Values of tensors, as far as they are known: constants, checks that pass, and symbols for the rest."""
