"""Run the user's code on fake tensors: a call, the state of its modules, symbols for sizes, and an observation of the
run.
"""
