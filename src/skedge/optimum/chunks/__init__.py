"""Exact optima and bounds for chunks on lanes."""
