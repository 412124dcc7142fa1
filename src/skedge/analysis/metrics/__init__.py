"""The metrics of a run, computed from its record."""
