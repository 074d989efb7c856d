"""How a project calls a target: in its own file, in tests, in other files, and in what was recorded."""
