"""A program around a target as it is run on fake tensors: what starts it, and where what it writes goes."""
