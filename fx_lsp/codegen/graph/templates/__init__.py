"""Template kernels: their patterns in a graph, and the nodes that represent them."""
