"""Rewrite FX graphs: queries on nodes, edits, and the passes over forward, backward and joint graphs."""
