"""Policies made ready for a scenario: requirements checked, constants calibrated."""

from __future__ import annotations

from dataclasses import replace

from .core.errors import PolicyError, ScenarioError
from .core.model.kinds import kind_of
from .core.model.scenario import Scenario
from .core.policy import AnyPolicy, Need, Policy
from .core.registry import make_policy, policy_of, registered
from .scenario.file import load_jobs


def prepare_policy(policy: AnyPolicy, scenario: Scenario) -> Policy:
    """The policy, with the constants that it takes from historical data calibrated on the scenario.

    Raises
    ------
    PolicyError
        If the policy is unknown, or the scenario lacks what it needs.
    """
    instance = policy_of(policy)
    # before calibration, whose errors would speak of the symptoms
    missing = instance.needs - offers(scenario)
    if missing:
        fitting = ", ".join(name for name in sorted(registered()) if _fits(name, scenario))
        raise PolicyError(
            f"policy {instance.name!r} needs {', '.join(sorted(missing))}, which the scenario does not have; policies "
            f"that fit it: {fitting or 'none'}"
        )
    if not _shares(instance, scenario):
        fitting = ", ".join(name for name in sorted(registered()) if _fits(name, scenario))
        raise PolicyError(
            f"policy {instance.name!r} does not keep to tenants and priority classes, and the cluster has some "
            f"(cluster.sharing); policies that do: {fitting or 'none'}"
        )
    # with constants, another object: the policy that the caller holds is not changed
    return instance.calibrated(_history(instance, scenario))


def _shares(policy: Policy, scenario: Scenario) -> bool:
    """Whether a policy keeps to the sharing of the scenario's cluster, if there is any."""
    # optional for third-party policies, hence getattr
    return scenario.cluster.sharing is None or bool(getattr(policy, "shares", False))


def _fits(name: str, scenario: Scenario) -> bool:
    """Whether a policy can run on `scenario`; False if its package is broken."""
    try:
        instance = make_policy(name)
        return instance.needs <= offers(scenario) and _shares(instance, scenario)
    except PolicyError:
        return False


def _history(policy: Policy, scenario: Scenario) -> Scenario:
    """The scenario with the jobs used for calibration: its own, or those of the policy's file."""
    if not policy.history:
        return scenario
    try:
        return replace(scenario, jobs=load_jobs(policy.history, scenario.cluster))
    except ScenarioError as error:
        raise PolicyError(f"price_source: {error}; it must be a table of jobs") from error


def prepare_for_service(policy: AnyPolicy, scenario: Scenario) -> Policy:
    """The policy for a service on the cluster of `scenario`, whose jobs are not known in advance.

    Raises
    ------
    PolicyError
        As :func:`prepare_policy`; also if jobs may arrive that the policy cannot handle there.
    """
    instance = prepare_policy(policy, scenario)
    # the jobs to come are not known, so that the cluster alone decides
    reason = instance.incompatibility(scenario.cluster)
    if reason is not None:
        raise PolicyError(f"{instance.name} cannot serve this cluster: {reason}")
    return instance


def offers(scenario: Scenario) -> frozenset[Need]:
    """The requirements of policies that the scenario meets, in the words of their `needs`."""
    offered = kind_of(scenario.cluster).offers(scenario)
    if scenario.has_utilities():
        offered.add("a utility of every job")
    if scenario.physics.horizon is not None:
        offered.add("a horizon")
    return frozenset(offered)
