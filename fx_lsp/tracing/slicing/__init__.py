"""The part of a file that a target needs, with every position kept."""
