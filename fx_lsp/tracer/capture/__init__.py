"""AOTAutograd's graphs of a call, and graphs as stages of the model."""
