"""Verification of a record against the rules of docs/model.md, one file per family of rules."""
