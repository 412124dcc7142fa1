"""The states that a job of the service can be in, in Slurm's words; apart, as naming them needs no extra."""

STATES = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "FAILED", "CANCELLED")
"""States of a job, in Slurm's words."""
