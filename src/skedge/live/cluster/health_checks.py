"""Ray's health-check settings; a module of its own, so that it can be imported without Ray and torch."""

from __future__ import annotations

HEALTH: dict[str, int] = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
"""Ray's system settings: a dead node is detected in 1.4 s, a frozen one in 4.4 s (Ray's defaults: 14 and 65 s)."""
