"""For authors of policies: the contract that every policy keeps, and small scenarios to try one on."""

from __future__ import annotations

from .contract import ContractError, MemoryJournal, check_policy, replay
from .scenarios import (
    resource_scenario,
    resource_scenarios,
    scenarios_for,
    site_scenario,
    site_scenarios,
    small_scenario,
    small_scenarios,
)

__all__ = [
    "ContractError",
    "MemoryJournal",
    "check_policy",
    "replay",
    "resource_scenario",
    "resource_scenarios",
    "scenarios_for",
    "site_scenario",
    "site_scenarios",
    "small_scenario",
    "small_scenarios",
]
