"""How a run is described, repeated and spread over processes."""
