"""Progressive filling on vectors of resources, and DRF over typed slots. Times are in seconds."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.fairness import demands, filled
from builders.gang_policies import job, random_scenarios, scenario, where
from builders.kernel import announced_end
from builders.paths import TRACES
from builders.product import play
from reference.drf import PooledJobs, all_fit, dominant_share, pooled_filling
from skedge.cli.main import app
from skedge.core.engine.ledger import CHUNKS, PS_TYPE, TYPE
from skedge.core.errors import PolicyError
from skedge.core.events import Event
from skedge.core.kernel.drive import drive_to_end
from skedge.core.kernel.kernel import Kernel
from skedge.core.model.cluster import Cluster, Physics, Server, job_table
from skedge.core.model.scenario import Jobs, Scenario
from skedge.core.model.time import SECOND
from skedge.core.registry import make_policy
from skedge.policies.drf.progressive_filling import ONE_PS, level_filling, progressive_filling
from skedge.scenario.file import default_scenario, load_scenario
from skedge.sim.world import SimulatedWorld
from skedge.simulate import run
from skedge.testing import check_policy

bounded = settings(
    max_examples=200, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
PHILLY = TRACES / "philly"


@bounded
@given(st.data())
def test_filling_by_levels_is_progressive_filling(data: st.DataObject) -> None:
    """Workers of up to 3 types, PSs of up to 2, with and without a limit of PSs; total and left differ."""
    kinds, ps_kinds = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    size = data.draw(st.integers(0, 12))
    kind, ps_kind, most = (
        np.array(data.draw(st.lists(st.integers(low, high), min_size=size, max_size=size)), np.int64)
        for low, high in ((0, kinds - 1), (0, ps_kinds - 1), (0, 7))
    )
    left = np.array(data.draw(st.lists(st.integers(0, 15), min_size=kinds, max_size=kinds)), np.int64)
    plenty = data.draw(st.booleans())
    ps_left = np.array([2**40 if plenty else data.draw(st.integers(0, 8)) for _ in range(ps_kinds)], np.int64)
    worker, ps = np.zeros((2, size, kinds + ps_kinds))
    worker[np.arange(size), kind] = ps[np.arange(size), kinds + ps_kind] = 1.0
    total = np.concatenate([left + data.draw(st.integers(1, 5)), np.full(ps_kinds, np.inf)])
    room = np.concatenate([left, ps_left]).astype(float)[None, :]
    expected, _ = progressive_filling(worker, ps, np.full(size, ONE_PS), most, room, total)
    jobs, counts, table = np.arange(size), np.empty(size, np.int64), np.zeros((size, CHUNKS + 1), np.int64)
    table[:, TYPE], table[:, PS_TYPE], table[:, CHUNKS] = kind, ps_kind, most
    level_filling(jobs, table, left, ps_left, counts)
    assert counts.tolist() == expected[:, 0].tolist()


def test_the_example_of_the_paper() -> None:
    """NSDI'11, Sec. 4.1: of 9 CPU and 18 GB, A with <1, 4> gets 3 tasks, B with <3, 1> gets 2; each has 2/3."""
    jobs: PooledJobs = [((1, 4), (0, 0), int(ONE_PS), 100), ((3, 1), (0, 0), int(ONE_PS), 100)]
    counts = filled(jobs, [9, 18])
    assert counts == [3, 2]
    assert [dominant_share(of, n, [9, 18]) for of, n in zip(jobs, counts, strict=True)] == [Fraction(2, 3)] * 2


def test_every_n_th_worker_comes_with_a_ps() -> None:
    """Workers of 1, a PS of 2 for every 3: of 10, worker 1 takes 3, 2 and 3 take 1 each, 4 takes 3, 5 takes 1: 9."""
    assert filled([((1,), (2,), 3, 100)], [9]) == [5]
    assert filled([((1,), (2,), 3, 100)], [8]) == [4]


def test_a_job_that_does_not_fit_drops_out_and_the_others_go_on() -> None:
    """The first takes 4 of 10 once and has no room for a second beside the other's: that gets all the rest."""
    assert filled([((4,), (0,), int(ONE_PS), 9), ((1,), (0,), int(ONE_PS), 9)], [7]) == [1, 3]


@bounded
@given(demands)
def test_the_compiled_filling_is_the_plain_one(drawn: tuple[PooledJobs, list[int], list[int]]) -> None:
    """The heap on rounded floats gives what exact fractions give, also where less is left than shares are parts of."""
    assert filled(*drawn) == pooled_filling(*drawn)


@bounded
@given(demands)
def test_filling_is_pareto_efficient_and_max_min_up_to_a_task(
    drawn: tuple[PooledJobs, list[int], list[int]],
) -> None:
    """Nobody can have a task more for nothing; if taking i's last one makes room for j's next, i is left no better."""
    jobs, left, total = drawn
    counts = filled(*drawn)
    assert all_fit(jobs, counts, left)
    for j, of in enumerate(jobs):
        more = [n + (i == j) for i, n in enumerate(counts)]
        if counts[j] == of[3]:
            continue
        assert not all_fit(jobs, more, left)
        for i in range(len(jobs)):
            less = [n - (k == i) for k, n in enumerate(more)]
            if i != j and counts[i] and all_fit(jobs, less, left):
                assert dominant_share(jobs[i], counts[i] - 1, total) <= dominant_share(of, counts[j], total)


def test_over_one_type_of_slot_no_allocation_is_fairer() -> None:
    """Every allocation of up to 9 slots to up to 4 jobs: the sorted shares of none are lexicographically larger."""
    rng = np.random.default_rng(3)
    for _ in range(60):
        most, slots = rng.integers(0, 5, int(rng.integers(1, 5))).tolist(), int(rng.integers(1, 10))
        jobs: PooledJobs = [((1,), (0,), int(ONE_PS), m) for m in most]
        possible = (c for c in product(*(range(m + 1) for m in most)) if sum(c) <= slots)
        assert sorted(filled(jobs, [slots])) == max(sorted(c) for c in possible)


# -- the policy -------------------------------------------------------------------------------------------------------


def states(s: Scenario, policy: str) -> list[tuple[Kernel, dict[int, int]]]:
    """After every event: workers of each job in the system; the run is checked while it goes on, so keep it short."""
    kernel, seen = Kernel(s, make_policy(policy)), []

    def look(event: Event, _: object) -> None:
        jobs = kernel.active().tolist()
        seen.append((kernel, {j: int(kernel.engine.workers_held[j]) for j in jobs}))
        kernel.validate_state()

    drive_to_end(kernel, SimulatedWorld(kernel), look)
    return seen


def test_held_workers_are_max_min_and_pareto_after_every_event() -> None:
    """With PSs to spare, on 60 scenarios: whoever has fewer by two has all that it can use; none is free and wanted."""
    compared = 0
    for s in random_scenarios(range(60)):
        if s.cluster.cloud is None:
            continue
        slots, chunks = int(s.cluster.workers.sum()), s.jobs.chunks
        for _, workers in states(s, "drf"):
            free = slots - sum(workers.values())
            for j, n in workers.items():
                assert n == chunks[j] or free == 0
                assert all(n == chunks[j] or other - n < 2 for other in workers.values())
                compared += len(workers) - 1
    assert compared > 500


def test_without_a_cloud_only_as_many_run_as_there_are_pss() -> None:
    """Four workers, one PS: the first of two jobs has all that it can use, the second waits for its PS."""
    s = scenario([job("a", 0, 2, 4), job("b", 0, 2, 4)], [(4, 1)])
    played = play(s, make_policy("drf"))
    assert where(played, "a") == [("s0", 2, 0, 0, 4)]
    assert where(played, "b") == [("s0", 2, 4, 4, 8)]


def test_a_job_keeps_the_nearest_workers_and_takes_the_fewest_servers_that_hold_the_rest() -> None:
    """a has all five workers, is left with three when b comes: those at 0 s and 1 s; b gets the two at 3 s."""
    near = {"s0": 3.0, "s1": 1.0, "s2": 0.0}
    jobs = [job("a", 0, 1, 20, chunks=5, upload_s=near), job("b", 10, 1, 4, chunks=2, upload_s=near)]
    played = play(scenario(jobs, [(2, 1), (2, 1), (1, 1)]), make_policy("drf"))
    at_10 = [(server, n) for server, n, start, *_ in where(played, "a") if start == 10]
    assert at_10 == [("s1", 2), ("s2", 1)]
    assert where(played, "b") == [("s0", 2, 10, 13, 17)]


def test_fixed_counts_stay_while_a_job_trains() -> None:
    """a begins alone with all four workers and keeps them; b and c, which wait, get two each when it ends at 5."""
    jobs = [job("a", 0, 1, 5, chunks=4), job("b", 3, 1, 2, chunks=2), job("c", 4, 1, 3, chunks=4)]
    s = scenario(jobs, [(4, 3)])
    played = play(s, make_policy("drf:counts=fixed"))
    assert where(played, "a") == [("s0", 4, 0, 0, 5)]
    assert where(played, "b") == [("s0", 2, 5, 5, 7)]
    assert where(played, "c") == [("s0", 2, 5, 5, 11)]
    dynamic = play(s, make_policy("drf"))
    assert [row[:3] for row in where(dynamic, "a")] == [("s0", 4, 0), ("s0", 2, 3)], "b takes two from it"


def test_fixed_counts_need_a_ps_that_is_free() -> None:
    """Two PSs and three workers: b waits for the PS of a, though a worker is free."""
    jobs = [job("a", 0, 1, 4, chunks=1), job("b", 0, 1, 4, chunks=1), job("c", 1, 1, 4, chunks=1)]
    played = play(scenario(jobs, [(3, 2)]), make_policy("drf:counts=fixed"))
    assert where(played, "c") == [("s0", 1, 4, 4, 8)]


def test_fixed_counts_go_with_typed_slots_only() -> None:
    """Elsewhere they are refused."""
    for name in ("s3", "s4"):
        with pytest.raises(PolicyError, match=r"^drf: counts=fixed goes with typed slots"):
            run(default_scenario(name), "drf:counts=fixed")


def test_fixed_counts_are_filled_among_the_jobs_that_wait() -> None:
    """On 60 scenarios: one allocation a job, of as many workers as the plain filling of what is free gives it."""
    compared = 0
    for s in random_scenarios(range(60)):
        if s.cluster.cloud is None:
            continue
        slots, chunks, held = int(s.cluster.workers.sum()), s.jobs.chunks.tolist(), dict[int, int]()
        for _, workers in states(s, "drf:counts=fixed"):
            stay = {j: n for j, n in held.items() if j in workers}
            waiting = [j for j in workers if j not in stay]
            tasks: PooledJobs = [((1,), (0,), int(ONE_PS), chunks[j]) for j in waiting]
            filling = pooled_filling(tasks, [slots - sum(stay.values())], [slots])
            assert workers == stay | dict(zip(waiting, filling, strict=True))
            held = {j: n for j, n in workers.items() if n > 0}
            compared += len(stay) > 0 and len(waiting) > 0
    assert compared > 100


def test_a_job_whose_type_the_edge_lacks_is_trained_in_the_cloud_by_all_its_chunks() -> None:
    """Three chunks of 2 s there after 5 s, whatever its k is: there is only the cloud."""
    frame, given = job_table([job("a", 0, 1, 2, chunks=3, upload_s={"cloud": 5.0})])
    cluster = Cluster([Server("cloud", "cloud")])
    for policy in ("drf", "preemptive"):
        played = play(Scenario(cluster, Jobs(frame, cluster, given), Physics()), make_policy(policy))
        assert where(played, "a") == [("cloud", 3, 0, 5, 7)]


def test_a_job_goes_on_where_its_data_are_when_a_server_is_lost() -> None:
    """It holds two workers on each of two servers; one is lost: the kernel suspends it, the other's two go on."""
    kernel = Kernel(scenario([job("a", 0, 1, 20, chunks=4)], [(2, 1), (2, 1)]), make_policy("drf"))
    kernel.handle(Event(0, arrived=(0,)))
    assert kernel.engine.placement(0) == ((0, 2), (1, 2))
    kernel.handle(Event(5 * SECOND, servers=((0, "lost"),)))
    assert kernel.engine.placement(0) == ((1, 2),)
    assert announced_end(kernel, 0) == 35 * SECOND, "20 of 80 worker-seconds are done, 60 are left for two"


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    """The first 120 passed jobs of the real Philly window on machines for a load of 0.9."""
    trace, machines = PHILLY / "bench_philly_2017-10-02_11-05.csv.gz", PHILLY / "revised_machine_list.csv"
    if not trace.is_file():
        pytest.skip("the real traces are not here (they are not shipped)")
    folder = tmp_path_factory.mktemp("philly") / "window"
    words = ["trace", "convert", trace, "--format", "philly-csv", "--machines", machines, "--first", 120, "--out"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["skedge", *map(str, [*words, folder, "--load", 0.9])])
        with pytest.raises(SystemExit):
            app()
    return load_scenario(folder / "scenario.yaml")


@pytest.mark.parametrize("policy", ["drf", "preemptive"])
def test_the_contract_holds_on_the_real_window(policy: str, window: Scenario) -> None:
    """check_policy and verify find nothing."""
    check_policy(lambda: make_policy(policy), [window])


@pytest.mark.parametrize("policy", ["drf", "preemptive"])
def test_the_contract_holds_on_s1(policy: str) -> None:
    """The same on JSAC'22's setting: 100 servers, 300 jobs, a cloud, slots of an hour."""
    check_policy(lambda: make_policy(policy), [default_scenario("s1")])
