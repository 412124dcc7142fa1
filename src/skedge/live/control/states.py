"""The states of a service's job, named as in Slurm; a module of its own, so that it can be imported without extras."""

STATES = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "FAILED", "CANCELLED")
"""States of a job, named as in Slurm."""
