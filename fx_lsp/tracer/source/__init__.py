"""What is said in the user's source: the expression that an operation came from, its text, and names."""
