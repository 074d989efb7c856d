"""From a failed run to plans that may run: constraints of operations, and what messages say."""
