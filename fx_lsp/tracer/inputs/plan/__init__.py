"""Plan the call of a target: its values and tensors, and their initial choice."""
