"""Exceptions of the user's code as failures: one sentence each, on the expression that caused it."""
