"""Scripts from their first statement to their last, on fake tensors and with real autograd: what raises is wrong."""
