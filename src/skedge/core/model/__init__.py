"""What a scenario is made of: servers, jobs, physics, units, ties, and the checks of all of them."""
