"""What runs where the GPU is: checks and measures the kernels of a generated file against what else there is to run.

`python -m fx_lsp.bench` is the runner: it starts a process for each variant and has them measure in turns.
"""
