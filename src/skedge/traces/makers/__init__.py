"""Makers of jobs: synthetic ones, and what a trace does not say."""
