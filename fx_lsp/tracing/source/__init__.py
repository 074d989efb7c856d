"""What a text says, read and never run: definitions, targets, names, and the project that it is part of."""
