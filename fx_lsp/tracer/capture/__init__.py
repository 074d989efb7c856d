"""Capture AOTAutograd's graphs of a call, and the graph as written, and convert graphs to stages of the model."""
