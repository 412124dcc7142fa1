"""Explanations: of a decision, of why a job waits, and of what a change would do to every job."""
