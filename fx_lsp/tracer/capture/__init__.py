"""AOTAutograd's graphs of a call, the graph as it is written, and graphs as stages of the model."""
