"""Word what is known of a trace: specs, sizes, inputs, guesses and problems."""
