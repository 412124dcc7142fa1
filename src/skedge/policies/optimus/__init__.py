"""Optimus (Peng et al., EuroSys'18)."""
