"""Everything between a scenario file and a Scenario."""
