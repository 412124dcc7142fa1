"""The states of a service's job and the roles of its tokens; a module of its own, imported without extras."""

STATES = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "FAILED", "CANCELLED")
"""States of a job, named as in Slurm."""

ROLES = ("read", "submit", "operate")
"""Roles of a service's tokens; each may what those before it may."""
