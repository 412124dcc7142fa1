"""How soon Ray finds out that a node is gone; here, so that it can be read where Ray and torch are not installed."""

from __future__ import annotations

HEALTH: dict[str, int] = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}
"""Ray's system settings. A dead node is found in 1.4 s and a frozen one in 4.4 s; Ray's own need 14 and 65 s."""
