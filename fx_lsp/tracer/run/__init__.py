"""The user's code on fake tensors: a call, the state of its modules, symbols for sizes, and what is seen of its run."""
