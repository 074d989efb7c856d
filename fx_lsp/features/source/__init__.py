"""Read and edit the text of a source file, without running it."""
