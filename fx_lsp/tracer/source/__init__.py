"""Map operations to the user's source: expressions, their text, and names."""
