"""First in, first out, in the variants that the papers measured against."""
