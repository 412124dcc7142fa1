"""The mechanics: lanes, allocations, data on servers; compiled."""
