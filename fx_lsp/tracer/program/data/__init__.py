"""What a program reads: datasets that are not on the disk, and the batches of loaders."""
