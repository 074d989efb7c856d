"""Simulate tensors on a missing GPU, and the answers of `torch.cuda` about it."""
