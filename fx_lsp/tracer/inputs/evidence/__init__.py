"""What the code and the program say about the inputs of a target."""
