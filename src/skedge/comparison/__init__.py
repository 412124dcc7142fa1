"""Comparison of policies: metrics by seed, significant differences, and sentences on both."""

MOST_SEEDS = 10_000
"""Greatest number of seeds of a comparison or a study."""
