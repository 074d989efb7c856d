"""Pages about a target besides its passes: partitioners, checkpoints, TorchScript, aliases, graphs built by hand."""
