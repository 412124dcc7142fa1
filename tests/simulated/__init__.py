"""A deterministic simulation of threads, processes, machines and disks: one seed makes one run."""
