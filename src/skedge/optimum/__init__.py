"""The distance of a run from the best: offline optima, and bounds that no schedule beats (``docs/optimum.md``)."""
