"""Judge numbers: what the tracer and the benchmark share that needs torch."""
