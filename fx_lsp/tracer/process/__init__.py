"""Processes that trace: the first file that runs, a warm one that forks, and its child that answers one request."""
