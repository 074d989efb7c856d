"""Name sizes after the code: find the names, and the size of each."""
