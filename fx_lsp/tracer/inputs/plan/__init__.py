"""Plan the call of a target: its values and tensors, and what they begin as."""
