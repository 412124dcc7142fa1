"""The service: its API, state machine, journal, limits and audit log."""
