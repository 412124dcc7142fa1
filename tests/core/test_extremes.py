"""Every field at its extremes: a scenario is refused in a sentence, or its run ends within a number of events."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from skedge.core.errors import ScenarioError, StuckError
from skedge.core.kernel.kernel import Kernel
from skedge.prepare import prepare_policy
from skedge.scenario.file import scenario_from_dict
from skedge.sim.failures import world_of

MOST_EVENTS = 12_000
"""Events of a run of three jobs of 10 s. Counted, as a clock would fail on a slow machine."""

SLOTS = {
    "slot": "1s",
    "cluster": {"servers": [{"id": f"n{i}", "workers": {"gpu": 2}, "ps": {"cpu": 4}} for i in range(2)]},
    "workload": {
        "jobs": [
            {"id": c, "arrival_s": i, "epochs": 1, "chunks": 2, "minibatches": 10, "minibatch_s": 1, "workers": 2}
            for i, c in enumerate("abc")
        ]
    },
}
LEAST, LONGEST = "1us", "100000000s"
FIELDS: list[tuple[tuple[str, ...], Any]] = [
    *((("slot",), value) for value in (LEAST, LONGEST)),
    *((("physics", name), value) for name in ("checkpoint_overhead", "horizon") for value in (LEAST, LONGEST)),
    (("physics",), {"mtbf": LEAST}), (("physics",), {"mtbf": LONGEST, "mttr": LEAST}),
    (("physics",), {"mtbf": LEAST, "mttr": LEAST}), (("physics",), {"mtbf": "1s", "mttr": LONGEST}),
    *((("physics",), {"estimate_error": value}) for value in (1e-9, 1000, 1e9)),
    *((("physics",), {"speedup": value}) for value in (1e-9, 1e9)),
    *((("cluster", "sharing"), {name: value}) for name in ("ageing", "min_runtime") for value in (LEAST, LONGEST)),
    *((("cluster", "sharing"), {"ageing": "1s", "most_preemptions": value}) for value in (0, 10**9, 10**18)),
    *((("cluster", "draw"), {"servers": value}) for value in (10**6, 10**9)),
    *((("cluster", "draw"), {"load": value}) for value in (1e-12, 1e12)),
    *((("workload",), {"synthetic": {"jobs": value, "span": "1d"}}) for value in (10**8, 10**12)),
    *((("job", name), value) for name in ("epochs", "minibatches") for value in (10**6, 10**12, 10**18)),
    *((("job", "chunks"), value) for value in (10**4, 10**9, 10**18)),
    *((("job", "workers"), value) for value in (10**9, 10**18)),
    *((("job", "minibatch_s"), value) for value in (1e-6, 1e8, 1e18)),
    *((("job", "upload_edge_s"), [0, value]) for value in (1e8, 1e12)),
    *((("job", "gradient_mb"), value) for value in (1e12, 1e18)), (("job", "chunk_mb"), 1e12),
]  # fmt: skip


def changed(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The scenario with one field changed, or one of every job."""
    fields: dict[str, Any] = deepcopy(SLOTS)
    if path[0] == "job":
        for job in fields["workload"]["jobs"]:
            job[path[1]] = value
    elif path[-1] == "draw":
        fields["cluster"] = {"draw": value}
    else:
        within = fields
        for name in path[:-1]:
            within = within.setdefault(name, {})
        within[path[-1]] = value
    return fields


def events_of(fields: dict[str, Any], policy: str) -> int:
    """Events of a run; 0 if the scenario is refused, and where jobs would never end the events until that is said."""
    try:
        scenario = scenario_from_dict(fields, "extreme", Path())
    except ScenarioError:
        return 0
    kernel, events = Kernel(scenario, prepare_policy(policy, scenario)), 0
    world = world_of(kernel)
    try:
        while events <= MOST_EVENTS and (event := world.next_event()) is not None:
            events += 1
            for order in kernel.handle(event):
                world.perform(order)
    except StuckError:
        return events
    return events


@pytest.mark.parametrize("policy", ["fifo", "srtf", "aonline"])
@pytest.mark.parametrize(("path", "value"), FIELDS, ids=str)
def test_a_field_at_its_extremes_is_refused_or_the_run_ends(path: tuple[str, ...], value: Any, policy: str) -> None:
    if path[-1] == "sharing" and policy == "aonline":
        policy = "tiresias:limit_s=10"
    assert events_of(changed(path, value), policy) <= MOST_EVENTS


def servers(count: int, gpus: int) -> dict[str, Any]:
    """A scenario of this many servers with these workers each."""
    some = [{"id": f"n{i}", "workers": {"gpu": gpus}, "ps": {"cpu": 1}} for i in range(count)]
    return {**SLOTS, "cluster": {"servers": some}}


RESOURCES = {
    "slot": "1s",
    "physics": {"slotted": True, "horizon": "60s"},
    "cluster": {"servers": [{"id": "m", "resources": {"gpu": 2}}]},
    "workload": {
        "jobs": [
            {"id": "a", "arrival_s": 0, "epochs": 1, "chunks": 1, "minibatches": 10, "minibatch_s": 1, "batch": 4,
             "ratio": 2, "worker_needs": {"gpu": 1}, "ps_needs": {"gpu": 0.5},
             "utility": {"height": 9, "steepness": 1, "target": 6}}
        ]
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (servers(1, 10**11), r"cluster\.servers\[0\]\.workers\.gpu: 100000000000: .* less than or equal to 100000"),
        (servers(11, 10**5), "cluster.servers: have 1,100,000 workers together; they may have 1,000,000"),
        (changed(("physics",), {"mtbf": LEAST}), r"physics\.mtbf = 1e-06 s: the servers \(2\) fail 3e\+07 times"),
        (changed(("cluster", "sharing"), {"ageing": LEAST}), "ageing_s = 1e-06: a waiting job ages 1e.07 times"),
        (changed(("cluster", "draw"), {"servers": 10**9}), "cluster.draw.servers: 1000000000: .* equal to 100000"),
        (changed(("workload",), {"synthetic": {"jobs": 10**9}}), "synthetic.jobs: 1000000000: .* equal to 10000000"),
        ({**RESOURCES, "slot": LEAST}, r"physics.horizon: has 60,000,000 slots of 1e-06 s; it may have 100,000"),
        ({**RESOURCES, "slot": LEAST, "physics": {}}, "slot = 1e-06 s: a job takes 2.5e.06; it may take 1,000,000"),
    ],
)
def test_an_absurd_size_is_refused_with_its_field(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        scenario_from_dict(fields, "absurd", Path())
