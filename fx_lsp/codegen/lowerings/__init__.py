"""The lowerings of operations, by kind."""
