"""Run a world: import a project once and run its program once, for all targets that the program calls."""
