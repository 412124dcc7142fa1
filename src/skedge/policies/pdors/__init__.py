"""PD-ORS (Yu et al., TNSE)."""
