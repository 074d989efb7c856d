"""Training and evaluation steps: loops of a file over batches, and the functions that their bodies amount to.

A step is also a function that calls `backward` itself. Standard library only.
"""
