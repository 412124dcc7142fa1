"""A scenario's settings for a reader."""

from __future__ import annotations

from html import escape

from skedge.core.model.cluster import Physics
from skedge.core.model.kinds import kind_of
from skedge.core.model.scenario import Scenario
from skedge.core.model.time import SECOND


def scenario_summary(scenario: Scenario) -> dict[str, str]:
    """Settings of a scenario for a reader, by name."""
    cluster, physics = scenario.cluster, scenario.physics
    edge = len(cluster.servers) - (cluster.cloud is not None)
    cloud = "with a cloud" if cluster.cloud is not None else "no cloud"
    time = f"slots of {physics.slot / SECOND:g} s" if physics.slotted else "continuous"
    return {
        "scenario": scenario.name,
        "scenario seed": str(scenario.seed),
        "jobs": f"{len(scenario.jobs):,}",
        "servers": f"{edge:,} edge, {cloud}",
        "workers": kind_of(cluster).workers(cluster),
        "time": time,
        "uploads": "charged" if physics.charge_upload else "free",
        "data of gangs": physics.data.replace("_", " "),
        "co-location": physics.colocation.replace("_", " "),
        "checkpoint overhead": f"{physics.checkpoint_overhead / SECOND:g} s",
        "estimate error": f"{physics.estimate_error:g}",
        "speedup": f"{physics.speedup:g}",
        **_failures(physics),
    }


def _failures(physics: Physics) -> dict[str, str]:
    """The settings of server failures; empty without failures."""
    if physics.mtbf is None:
        return {}
    period = f"every {physics.mtbf / SECOND:g} s each, repaired in {physics.mttr / SECOND:g} s"
    return {"server failures": f"{period}; no trained work is lost"}


def summary_html(scenario: Scenario) -> str:
    """The settings as the HTML of a table."""
    rows = (
        f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in scenario_summary(scenario).items()
    )
    return f"<table><tbody>{''.join(rows)}</tbody></table>"
