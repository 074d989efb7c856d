"""A world: a project that is imported once and a program that is run once, for all targets that it calls."""
