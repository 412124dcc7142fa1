"""Synchronous training, coordinated apart from the controller: trainers, teams, and the controller's client."""
