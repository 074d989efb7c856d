"""Convert exceptions of the user's code to failures: one sentence each, on the expression that caused it."""
