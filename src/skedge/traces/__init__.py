"""Traces: what was submitted when, on how many GPUs and for how long; read from files or drawn, and made into jobs."""
