"""The process that runs a job: it needs nothing but the standard library, and runs code of nobody else."""
