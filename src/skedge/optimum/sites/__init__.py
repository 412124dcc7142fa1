"""Exact optima and bounds for jobs at sites."""
