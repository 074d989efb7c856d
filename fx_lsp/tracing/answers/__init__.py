"""Answers by key, in memory and on disk, moved to where their lines stand now."""
