"""Exact optima and bounds for gangs on typed slots."""
