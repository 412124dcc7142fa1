"""Policies compared: their metrics by seed, what of them is decided, and sentences on both."""

MOST_SEEDS = 10_000
"""Greatest number of seeds of a comparison or a study."""
