"""What a program reads: data sets that are not on the disk, and the batches of loaders."""
