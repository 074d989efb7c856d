"""The process of one variant: it needs torch, and Triton on a GPU. It answers the requests of the runner."""
