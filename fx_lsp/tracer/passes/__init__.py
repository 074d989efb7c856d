"""Run passes on a target's graphs: the compiler's, and the user's own; a stage for each."""
