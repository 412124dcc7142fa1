"""Words of the service: states of a job, roles of tokens, what is notified of.

A module of its own, imported without extras.
"""

STATES = ("PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "FAILED", "CANCELLED")
"""States of a job, named as in Slurm."""

ACTIVE = frozenset(STATES[:3])
"""States of the jobs in the system."""

WAITING = frozenset({"PENDING", "SUSPENDED"})
"""Of these, those that do not run."""

ROLES = ("read", "submit", "operate")
"""Roles of a service's tokens; each may what those before it may."""

NOTIFIED = ("completed", "failed", "preempted", "stalled", "server")
"""What operators can be notified of: four things that happen to jobs, and that a server is lost or back."""
