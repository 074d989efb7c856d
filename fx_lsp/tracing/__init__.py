"""Trace open files from the editor's side: targets, processes, cache, scheduling. Never imports torch."""
