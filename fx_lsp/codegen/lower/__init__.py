"""Lower FX nodes to values, by kind of operation."""
