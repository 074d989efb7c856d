"""Where a target's inputs come from: what is written down first, search last."""
