"""How far a run is from the best: offline optima, and bounds that no schedule beats (``docs/optimum.md``)."""
