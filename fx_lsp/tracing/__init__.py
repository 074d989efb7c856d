"""The workspace side of tracing: finding targets, processes, cache, scheduling. Never imports torch."""
