"""Run a job: this process only needs the standard library, and runs no foreign code."""
