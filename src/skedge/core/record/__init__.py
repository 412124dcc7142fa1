"""The record of a run: its tables and their columns."""
