"""What is known of the values of tensors: constants, checks that pass, and symbols for the rest."""
