"""The user's source: the expression that an operation came from, its text, and names."""
