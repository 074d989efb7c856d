"""Measure on the GPU's machine: check and time the kernels of a generated file against the alternatives.

`python -m fx_lsp.bench` is the runner: it starts a process for each variant and has them interleave their measurements.
"""
