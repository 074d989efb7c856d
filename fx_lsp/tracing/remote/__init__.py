"""Benchmarks on other machines: which hosts there are, how they are reached, and what became of the jobs."""
