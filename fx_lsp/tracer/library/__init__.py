"""The engine for scripts and notebooks: callables as they are in memory, and graphs that run."""
