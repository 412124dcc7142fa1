"""CPU time of a run in She et al.'s setting at a size of its own, verification included: the bar is 60 s a policy.

    python benchmarks/settings.py [--servers 300] [--jobs 500] [--policies batch;batchsche] [--repeats 3]

The scenario is S2 with other numbers of servers and jobs. Kernels are warmed up by a first run of S2 as it is.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import yaml

from skedge.scenario.file import default_scenario, scenario_from_dict, shipped
from skedge.simulate import run

POLICIES = "batch;batchsche;batch:literal_cost_d=true;batch:cloud_capacity=0;drf;preemptive"


def main() -> None:
    """Print the least and the largest CPU time of each policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=300)
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    content = yaml.safe_load(shipped("s2").read_text(encoding="utf-8"))
    content["cluster"]["draw"]["servers"] = asked.servers
    content["workload"]["synthetic"] = {"jobs": asked.jobs, "span": "200h"}
    scenario = scenario_from_dict(content, "s2", Path())
    for policy in asked.policies.split(";"):
        run(default_scenario("s2"), policy)
        times = []
        for _ in range(asked.repeats):
            began = time.process_time()
            done = run(scenario, policy)
            violations = done.verify()
            times.append(time.process_time() - began)
        print(f"{policy}: {min(times):.2f} to {max(times):.2f} s of CPU; {len(violations)} violations")


if __name__ == "__main__":
    main()
