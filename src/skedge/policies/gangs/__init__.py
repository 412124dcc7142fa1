"""Gang policies: SRTF, Tiresias, Preemptive and their common base."""
