"""A run's record in the formats of other tools."""
