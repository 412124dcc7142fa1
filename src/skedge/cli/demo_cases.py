"""What ``skedge demo`` runs."""

from __future__ import annotations

DEMO_POLICIES = ("aonline", "srtf", "preemptive", "tiresias", "fifo:backfill=true", "fifo")
"""Policies of the demo, and the default of ``skedge compare``."""

DEMO = {"rigid": "demo", "divisible": "demo-divisible"}
"""Shipped scenarios of the demo, by what they assume about the same jobs."""
