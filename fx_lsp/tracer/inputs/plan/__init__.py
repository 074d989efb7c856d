"""What to call a target with: plans of values and tensors, and what they begin as."""
