"""Build pages on a target besides its passes: partitioners, checkpoints, TorchScript, aliases, hand-built graphs."""
