"""Training on Ray: agents, parameter servers, trainers, checkpoints, users' code."""
