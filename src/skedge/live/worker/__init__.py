"""Processes of jobs: their own code, the actors that start and ask them, and what they train, store and answer."""
