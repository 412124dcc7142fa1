"""What each default decides: policies on the demo's jobs with one assumption changed at a time.

    python benchmarks/assumptions.py [--seeds 5] [--policies a;b] [--out FILE]

The first row is the demo as shipped; each other row changes one line of its scenario file. A cell is the total JCT
over SRTF's in the same row, the mean over the seeds with its 95 % interval. All seeds draw jobs and machines anew.
Every run is verified; the command ends with an error if a rule is broken.
"""

from __future__ import annotations

import argparse
import copy
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from skedge.comparison.compare import Comparison, compare
from skedge.core.model.scenario import Scenario
from skedge.scenario.file import scenario_from_dict, shipped

POLICIES = "srtf;aonline;preemptive;tiresias;fifo:backfill=true;fifo"

ASSUMPTIONS: dict[str, dict[str, Any]] = {
    "as shipped": {},
    "SRTF, Tiresias-L: `placement=literal`": {"policies": ",placement=literal"},
    "uploads: 5 % of the duration (`upload_share: 0.05`)": {"workload": {"upload_share": 0.05}},
    "the two before together": {"policies": ",placement=literal", "workload": {"upload_share": 0.05}},
    "uploads: free (`charge_upload: false`)": {"physics": {"charge_upload": False}},
    "a cloud without limit (`cloud: true`)": {"draw": {"cloud": True}},
    "load over the span (`load_over: span`)": {"draw": {"load_over": "span"}},
    "restored at no cost (`checkpoint_overhead: 0`)": {"physics": {"checkpoint_overhead": 0}},
    "data in the last place only (`data: last_place`)": {"physics": {"data": "last_place"}},
    "durations known to a factor of 2 (`estimate_error: 1`)": {"physics": {"estimate_error": 1.0}},
    "divisible jobs (`make: divisible`)": {"workload": {"make": "divisible"}},
}
"""Fields to change, by section of the scenario file; `policies` is added to the names of those that have placements."""

PLACED = ("srtf", "tiresias")


def main() -> None:
    """Compare, and print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    policies = asked.policies.split(";")
    lines = [f"| assumption | SRTF, mean JCT | {' | '.join(p for p in policies if p != 'srtf')} |"]
    lines.append("|---" * (len(policies) + 1) + "|")
    for text, change in ASSUMPTIONS.items():
        lines.append(row(text, compared(change, policies, asked.seeds)))
        print(lines[-1], flush=True)
    if asked.out is not None:
        asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


def compared(change: dict[str, Any], policies: list[str], seeds: int) -> Comparison:
    """The comparison under a change of the demo; its reference stays SRTF."""
    placement = change.get("policies", "")
    named = [p + placement.replace(",", ":", 1) if placement and p in PLACED else p for p in policies]
    form = yaml.safe_load(shipped("demo").read_text(encoding="utf-8"))
    found = compare(partial(scenario, form, change), named, range(form["seed"], form["seed"] + seeds))
    broken = [v for by_seed in (found.violations or {}).values() for ones in by_seed for v in ones]
    if broken:
        raise SystemExit(f"{broken[0].rule}: {broken[0].message}")
    return found


def scenario(form: dict[str, Any], change: dict[str, Any], seed: int) -> Scenario:
    """The demo at a seed, with the changed fields."""
    data = copy.deepcopy(form)
    data["workload"].update(change.get("workload", {}))
    data["cluster"]["draw"].update(change.get("draw", {}))
    data["physics"] = data.get("physics", {}) | change.get("physics", {})
    return scenario_from_dict(data, "demo", Path(), seed)


def row(text: str, found: Comparison) -> str:
    """A row of the table: the reference's mean JCT in hours, the others' rates."""
    reference, *others = found.policies
    mean = found.estimate(reference, "jct_mean_s")
    hours = "–" if mean is None else f"{mean.mean / 3600:.2f} h"
    return f"| {text} | {hours} | {' | '.join(rate(found, policy) for policy in others)} |"


def rate(found: Comparison, policy: str) -> str:
    """Mean JCT rate with its interval."""
    one = found.estimate(policy, "jct_rate")
    if one is None:
        return "–"
    interval = "" if one.low is None or one.high is None else f" [{one.low:.3g}, {one.high:.3g}]"
    return f"{one.mean:.3g}{interval}"


if __name__ == "__main__":
    main()
