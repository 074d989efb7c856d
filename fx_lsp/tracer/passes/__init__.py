"""What each pass made of a target's graphs: the compiler's, and the user's own."""
