"""The numbers of a run, computed from its record."""
