"""Run one variant in its process, which needs torch, and Triton on a GPU. It answers the requests of the runner."""
