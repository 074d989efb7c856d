"""Tensors on a GPU that is not there, and what `torch.cuda` answers about it."""
