"""Tools for policy authors: the contract of all policies, and small scenarios for trying a policy."""

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
