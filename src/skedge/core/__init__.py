"""The decision core: model, lanes, kernel and record. Imports nothing else of skedge."""
