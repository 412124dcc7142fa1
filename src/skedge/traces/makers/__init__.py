"""Makers of jobs: synthetic traces, and the parameters that traces do not contain."""
