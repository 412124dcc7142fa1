"""Analysis of a recorded run: verification of the model's rules, and metrics."""
