"""Find the calls of a target in its project: in its own file, in tests, in other files, and in recordings."""
