"""The names that code gives to sizes: where it does, and which size of which tensor each is."""
