"""Define the commands of the command line. Each has `add_arguments(parser)` and `run(arguments)`: an exit code."""
