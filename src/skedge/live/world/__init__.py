"""The live world: what the kernel's orders start on Ray, and what has run."""
