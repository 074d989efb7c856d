"""Store answers by key, in memory and on disk, and move them to the current lines."""
