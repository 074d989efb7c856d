"""Answer the requests of coding agents, over the Model Context Protocol."""
