"""Dorm (Sun et al., TPDS'18)."""
