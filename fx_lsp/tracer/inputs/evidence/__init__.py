"""Gather evidence about the inputs of a target from its code and from the program."""
