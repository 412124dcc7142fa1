"""Traces of job submissions (time, GPUs, duration): read from files or drawn at random, and made into jobs."""
