"""Judge numbers, and run kernels without a GPU: what the tracer and the benchmark share that needs torch and Triton."""
