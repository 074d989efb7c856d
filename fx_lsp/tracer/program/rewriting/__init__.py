"""User code with calls in it while a program runs: where functions begin, where data may be absent, where loops end."""
