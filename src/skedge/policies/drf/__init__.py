"""Dominant resource fairness (Ghodsi et al., NSDI'11)."""
