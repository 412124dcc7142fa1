"""Lower bounds from pooled workers."""
