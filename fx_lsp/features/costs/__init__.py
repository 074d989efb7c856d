"""Sum up costs: operations, memory, lines, and measurements."""
