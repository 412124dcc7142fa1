"""Queues of the lanes and their projection into the future, compiled."""
