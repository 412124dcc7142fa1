"""Other ways to the same answers: written to be read, not to be fast, and without the code that they check."""
