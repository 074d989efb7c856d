"""FX graphs to FX graphs: questions about nodes, edits, and the passes over forward, backward and joint graphs."""
