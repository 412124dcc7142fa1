"""The journal of a live run: its entries, their checksums, where they are stored, and their archive."""
