"""The service around the controller: its API, who may ask what, its processes, and what operators do with its state."""
