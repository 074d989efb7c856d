"""Provide the engine for scripts and notebooks: callables in memory, and graphs that run."""
