"""Exact optima and bounds for total utility on servers with resources."""
