"""Description of runs, repetition, and parallel execution."""
