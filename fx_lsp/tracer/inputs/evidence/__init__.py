"""Collect evidence on the inputs of a target from its code and from the program."""
