"""Okita (Han et al.)."""
