"""What a recorded run shows: whether it keeps the rules of the model, and how well it did."""
