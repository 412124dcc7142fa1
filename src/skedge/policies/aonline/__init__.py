"""A_online, preemptive (Wang et al., JSAC'22)."""
