"""The kinds of studies: what is varied, measured and claimed."""
