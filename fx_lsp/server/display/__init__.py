"""What the client shows of a session: diagnostics, views, the page of benchmarks."""
