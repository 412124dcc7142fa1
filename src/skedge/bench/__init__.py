"""The benchmark suite: frozen scenarios with proved bounds, results that can be checked again, and a leaderboard."""
