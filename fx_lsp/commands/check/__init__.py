"""Trace every function and module of files and directories, and report the mistakes."""
