"""Analyse texts without running them: definitions, targets, names, and the project around them."""
