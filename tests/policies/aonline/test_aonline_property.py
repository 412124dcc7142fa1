"""A_online against the plain path, the theory that is true, and the theory that is not (``docs/errata.md``).

Instances are drawn twice: by Hypothesis, which shrinks what fails, and in volume from seeded generators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.aonline_instances import Kind, Pick, draw_instance, draw_mode
from builders.aonline_property import ANY, F, assert_same, is_near_tie, product, seeded_pick
from builders.product import (
    Run,
    alphas_of_run,
    chunks_of_run,
    completions_of_plain,
    completions_of_run,
)
from builders.thorough import thorough_after
from reference.aonline import a_online, calculate_q, fractional_beta, fractional_flow
from reference.aonline_model import CLOUD, Chunk, Instance, Job, Mode, Result, Server
from skedge.core.errors import PolicyError
from skedge.core.model.cluster import Physics
from skedge.core.model.time import SECOND

bounded = settings(
    max_examples=30, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
NO_LIMITS = Kind(storage=False)


@st.composite
def instances(draw: Callable[..., Any], kind: Kind = ANY, readings: tuple[str, ...] = ("marginal", "eq5")) -> Any:
    pick = _pick_of(draw)
    return draw_instance(pick, kind), draw_mode(pick, readings)


def _pick_of(draw: Callable[..., Any]) -> Pick:
    return lambda lo, hi: draw(st.integers(lo, hi))


def seeded(seed: int, kind: Kind = ANY, readings: tuple[str, ...] = ("marginal", "eq5")) -> tuple[Instance, Mode]:
    pick = seeded_pick(seed)
    return draw_instance(pick, kind), draw_mode(pick, readings)


def blocks(count: int, size: int) -> Any:
    """`count` seeds in blocks of `size`, so that a block is a test; those after the second are thorough."""
    ranges = [range(first, first + size) for first in range(0, count, size)]
    return pytest.mark.parametrize("seeds", thorough_after(2, ranges), ids=str)


def one_server(*jobs: Job, workers: int = 1, **options: Any) -> Instance:
    """A server with one type of worker and PSs enough."""
    return Instance((Server(("0",) * workers, ("0",) * workers),), jobs, **options)


def job(r: int, p: int, *, D: int = 1, delta: dict[int, int] | None = None, u: int = 0) -> Job:
    """A job with chunks of p time units, on the edge and in the cloud."""
    return Job(r=r, E=1, D=D, B=1, m=p, delta=delta or {0: 0, CLOUD: 1000}, u=u)


# -- the product is the plain path ------------------------------------------------------------------------------------


@bounded
@given(instances())
def test_product_equals_plain_path_exactly(drawn: tuple[Instance, Mode]) -> None:
    """In the integer modes every chunk goes to the same worker, runs at the same time and has the same PS."""
    instance, mode = drawn
    assert_same(instance, mode, a_online(instance, mode), product(instance, mode))


@bounded
@given(instances(readings=("fractional",)))
def test_product_equals_plain_path_in_fractional_mode(drawn: tuple[Instance, Mode]) -> None:
    """Where Q is in floats: alphas to 1e-9, and all choices equal unless two candidates are closer than that."""
    instance, mode = drawn
    result = a_online(instance, mode)
    run = product(instance, mode)
    if not is_near_tie(result):
        assert_same(instance, mode, result, run)


@blocks(480, 60)
def test_product_equals_plain_path_and_keeps_lemma_4_in_volume(seeds: range) -> None:
    """480 seeded instances in all modes: equal to the plain path, verified, and sum alpha = sum (c - r) / D."""
    for seed in seeds:
        instance, mode = seeded(seed, readings=("marginal", "marginal", "eq5", "fractional"))
        result, run = a_online(instance, mode), product(instance, mode)
        if mode.q == "fractional" and is_near_tie(result):
            continue
        assert_same(instance, mode, result, run)
        if mode.q == "marginal" and result.chunks:
            assert run.metrics["sum_alpha_s"] == pytest.approx(float(result.sum_flow) / SECOND, rel=1e-9)


@blocks(300, 75)
def test_runs_keep_the_rules_whatever_the_physics(seeds: range) -> None:
    """With checkpoint overhead, wrong estimates, free uploads, and no cloud at all, every run is verified.

    Lemma 4 survives the overhead, because Q counts it: the lane is projected as it will really run.
    """
    for seed in seeds:
        pick = seeded_pick(seed)
        instance, mode = draw_instance(pick, ANY), draw_mode(pick, ("marginal", "eq5", "fractional"))
        cloud = pick(0, 1) == 1
        if not cloud:
            instance, mode = with_plenty_of_pss(instance), replace(mode, cloud=False)
        physics = Physics(
            slotted=instance.grain > 1, slot=max(instance.grain, 2), checkpoint_overhead=pick(0, 5) * instance.grain,
            estimate_error=pick(0, 2) / 2, charge_upload=pick(0, 3) > 0, speedup=1 + float(instance.epsilon),
        )  # fmt: skip
        run = product(instance, mode, cloud=cloud, physics=physics)
        if mode.q == "marginal" and physics.estimate_error == 0 and len(run.schedule.runs):
            assert run.metrics["sum_alpha_s"] == pytest.approx(float(flow_of_run(run)) / SECOND, rel=1e-9)


def with_plenty_of_pss(instance: Instance) -> Instance:
    """Without a cloud there is no PS to fall back on: as many PSs of each type as workers."""
    *others, last = instance.servers
    workers = sum(len(server.workers) for server in instance.servers)
    return replace(instance, servers=(*others, replace(last, ps=tuple(sorted("abc" * workers)))))


def flow_of_run(run: Run) -> Fraction:
    """Sum of (c_jd - r_j) / D_j from the runs table [µs]."""
    ends: dict[tuple[int, int], int] = {}
    for name, d, end in run.schedule.runs.select("job", "chunk", "end").rows():
        ends[name, d] = max(end, ends.get((name, d), 0))
    jobs = run.scenario.jobs
    return sum((F(int(end - jobs.arrival[j]), int(jobs.chunks[j])) for (j, _), end in ends.items()), F(0))


# -- Lemma 4, and where the paper's Q breaks it -----------------------------------------------------------------------


@blocks(4000, 500)
def test_lemma_4_holds_exactly_for_the_marginal_q(seeds: range) -> None:
    """Sum alpha = sum beta = sum (c - r) / D in fractions: 4,000 instances, any delays, cloud, storage.

    The cloud's private workers count in beta: without them the equality is lost whenever a chunk goes there (J25).
    """
    for seed in seeds:
        instance, mode = seeded(seed, readings=("marginal",))
        result = a_online(instance, mode)
        assert result.sum_alpha == result.sum_beta == result.sum_flow


def test_lemma_4_needs_the_private_workers_of_the_cloud() -> None:
    """J25: a job in the cloud has alpha = Delta + p = 5 + 3; beta of the edge alone is 0."""
    instance = one_server(job(0, 3, delta={0: 9, CLOUD: 5}))
    result = a_online(instance)
    assert result.sum_alpha == result.sum_beta == 8
    assert (0, 0) not in result.timelines


@blocks(600, 300)
def test_fractional_q_sums_to_the_fractional_flow(seeds: range) -> None:
    """Lemma 4 for the repaired dual: sum alpha = total fractional flow = the integral of the fractional beta."""
    for seed in seeds:
        instance, mode = seeded(seed, readings=("fractional",))
        result = a_online(instance, mode)
        assert result.sum_alpha == sum(map(fractional_flow, result.timelines.values()), F(0))


def test_eq5_without_preemption_breaks_lemma_4() -> None:
    """J21: Eq. (5) charges job 1 its 3 units to job 0, which in truth goes on: 8 + 6 = 14, but JCT 8 + 5 = 13.

    Job 0 (p=8) runs 0-8. Job 1 (p=3, r=6): Q = 0 + 0 + 3 + 3 * 1 = 6. Not preempted, job 0 ends at 8 and job 1 at 11.
    With preemption job 1 runs 6-9 and job 0 ends at 11: 11 + 3 = 14 = sum alpha. The marginal Q of the case without
    preemption is 11 - 6 = 5.
    """
    instance = one_server(job(0, 8), job(6, 3))
    stubborn = a_online(instance, Mode("eq5", preempt_running=False))
    assert (stubborn.sum_alpha, stubborn.sum_beta) == (14, 13)
    preempting = a_online(instance, Mode("eq5"))
    assert preempting.sum_alpha == preempting.sum_beta == 14
    marginal = a_online(instance, Mode("marginal", preempt_running=False))
    assert marginal.sum_alpha == marginal.sum_beta == 13


def test_product_shows_the_same_break_of_lemma_4_without_preemption() -> None:
    """J21 in the product: the metrics give 14 and 13 µs."""
    numbers = product(one_server(job(0, 8), job(6, 3)), Mode("eq5", preempt_running=False)).metrics
    assert numbers["sum_alpha_s"] * SECOND == pytest.approx(14)
    assert numbers["sum_beta_s"] * SECOND == pytest.approx(13)


def test_eq5_breaks_lemma_4_for_chunks_in_transit() -> None:
    """J22: job 0 (p=2) reaches the worker at 4; job 1 (p=1, r=1, there at 2) is charged 1 for it and does it no harm.

    Q of job 1 by Eq. (5): 1 + 0 + 1 + 1 * 1 = 3. It runs 2-3, job 0 4-6: JCT 6 + 2 = 8, sum alpha 6 + 3 = 9.
    """
    instance = one_server(job(0, 2, delta={0: 4, CLOUD: 1000}), job(1, 1, delta={0: 1, CLOUD: 1000}))
    printed, marginal = a_online(instance, Mode("eq5")), a_online(instance)
    assert (printed.sum_alpha, printed.sum_beta) == (9, 8)
    assert marginal.sum_alpha == marginal.sum_beta == 8


def later_arrivals(others: list[Chunk], new: Chunk) -> bool:
    return any(c.arrive > new.arrive for c in others)


@blocks(300, 100)
def test_eq5_equals_marginal_q_when_nothing_is_in_transit(seeds: range) -> None:
    """J22: for every chunk and every worker that no chunk reaches after t0, Eq. (5) is the marginal increase."""
    compared = 0
    for seed in seeds:
        instance, mode = seeded(seed, NO_LIMITS)
        result = a_online(instance, replace(mode, preempt_running=True))
        for i, new in enumerate(result.chunks):
            for place in {c.place for c in result.chunks if c.place[0] != CLOUD}:
                others = [c for c in result.chunks[:i] if c.place == place]
                there = replace(new, place=place)
                if not later_arrivals(others, there):
                    assert calculate_q(others, there, Mode("eq5")).q == calculate_q(others, there, Mode("marginal")).q
                    compared += 1
    assert compared > 500


@blocks(300, 150)
def test_eq5_and_marginal_dispatch_alike_where_delays_are_equal(seeds: range) -> None:
    """With one delay for all jobs and servers nothing is in transit at t0, so both readings are one algorithm."""
    for seed in seeds:
        instance, mode = seeded(seed, NO_LIMITS)
        same = dict.fromkeys(range(len(instance.servers)), 3)
        jobs = tuple(replace(j, delta=same | {CLOUD: j.delta[CLOUD]}) for j in instance.jobs)
        instance = replace(instance, jobs=jobs)
        eq5, marginal = (a_online(instance, Mode(q, cloud=mode.cloud)) for q in ("eq5", "marginal"))
        assert eq5.timelines == marginal.timelines
        assert eq5.costs == marginal.costs


# -- the dual constraint ----------------------------------------------------------------------------------------------


def worst_breach(instance: Instance, result: Result, *, printed: bool = False) -> Fraction:
    """Largest alpha_jd - right side of (6a') over all chunks, qualified edge workers and t >= r_j + Delta_js.

    (6a'): alpha <= (t - r)/D + p (1/D + beta), beta the fractional weight. Between two of these times the right side
    is linear in t, so its least value is at one of them: r_j + Delta_js, the starts and ends of runs on the worker, and
    the releases of its jobs. There beta jumps up, so the value just before is looked at too. After the last of them
    beta is 0 and the right side grows. `printed`: (6a), without p/D, with the weight of whole chunks.
    """
    worst = F(-(10**9))
    workers = [(s, w, t) for s, server in enumerate(instance.servers) for w, t in enumerate(server.workers)]
    for chunk, cost in zip(result.chunks, result.costs, strict=True):
        for s, w, kind in workers:
            if kind == instance.jobs[chunk.job].type:
                right = _least_right_side(instance, result, chunk, (s, w), printed=printed)
                worst = max(worst, cost.q - right)
    return worst


def _least_right_side(
    instance: Instance, result: Result, chunk: Chunk, place: tuple[int, int], *, printed: bool
) -> Fraction:
    first = instance.decision_time(chunk.job) + instance.delta(chunk.job, place[0])
    runs = result.timelines.get(place, [])
    times = {first} | {t for _, *bounds in runs for t in bounds} | {c.r for c in result.on(place)}
    p, D = instance.p(chunk.job, 0), chunk.D

    def right(t: Any, *, before: bool) -> Fraction:
        if printed:
            return F(t - chunk.r) / D + p * whole_beta(result, place, t)
        return F(t - chunk.r) / D + p * (F(1, D) + fractional_beta(result, place, t, just_before=before))

    after = [right(t, before=False) for t in times if t >= first]
    return min(after + [right(t, before=True) for t in times if t > first])


def whole_beta(result: Result, place: tuple[int, int], t: Any) -> Fraction:
    """beta_sw(t) as the paper has it: 1/D of every chunk of the worker that is released and uncompleted."""
    mine = (c for c in result.on(place) if c.r <= t < result.completion[c.job, c.d])
    return sum((F(1, c.D) for c in mine), F(0))


@blocks(600, 100)
def test_repaired_dual_constraint_holds_in_fractional_mode(seeds: range) -> None:
    """(6a') holds for all jobs, qualified workers and times, without a cloud's workers and without storage limits."""
    kind = Kind(storage=False, jobs=6, chunks=3, grains=(1, 1, 4))
    for seed in seeds:
        instance, mode = seeded(seed, kind, ("fractional",))
        mode = replace(mode, cloud=False, preempt_running=True)
        assert worst_breach(instance, a_online(instance, mode)) <= 0


def test_printed_dual_constraint_is_false_for_two_idle_workers() -> None:
    """J23: one job with one chunk of 1: alpha = 1; on the other, idle worker (6a) reads 1 <= 0 at t = r_j."""
    instance = one_server(job(0, 1), workers=2)
    result = a_online(instance)
    assert result.costs[0].q == 1
    assert result.chunks[0].place == (0, 0)
    assert whole_beta(result, (0, 1), 0) == 0
    assert worst_breach(instance, result, printed=True) == 1


def test_proof_of_lemma_2_fails_for_a_partly_processed_chunk() -> None:
    """J24: at t' = 8 the other worker has just finished: alpha = 6, but (t' - r)/D + p/D + p beta = 2 + 3 + 0.

    Jobs 0 and 1 (p=8) take a worker each at 0. Job 2 (p=3, r=6) costs 3 + 3 * 1 = 6 on either and takes the first.
    """
    instance = one_server(job(0, 8), job(0, 8), job(6, 3), workers=2)
    result = a_online(instance)
    assert [c.place[1] for c in result.chunks] == [0, 1, 0]
    assert result.costs[2].q == 6
    assert whole_beta(result, (0, 1), 8) == 0
    assert F(8 - 6) + 3 == 5 < result.costs[2].q


def test_repaired_constraint_holds_where_the_printed_ones_fail() -> None:
    """In fractional mode the instances of J23 and J24 satisfy (6a')."""
    for instance in (
        one_server(job(0, 1), workers=2),
        one_server(job(0, 8), job(0, 8), job(6, 3), workers=2),
    ):
        assert worst_breach(instance, a_online(instance, Mode("fractional", cloud=False))) <= 0


# -- what does hold (the list in docs/errata.md) ----------------------------------------------------------------------


@bounded
@given(instances())
def test_weighted_flow_is_between_jct_and_its_dmax_fold(drawn: tuple[Instance, Mode]) -> None:
    """Sum (c_jd - r)/D <= c_j - r <= sum (c_jd - r) for every job, so the total JCT lies in [S, D_max S]."""
    instance, mode = drawn
    result = a_online(instance, mode)
    for j in result.zeta:
        spent = [time - instance.jobs[j].r for (name, _), time in result.completion.items() if name == j]
        assert F(sum(spent)) / len(spent) <= max(spent) <= sum(spent)
    total = sum(result.job_completion(j) - instance.jobs[j].r for j in result.zeta)
    largest = max((instance.jobs[j].D for j in result.zeta), default=1)
    assert result.sum_flow <= total <= largest * result.sum_flow


@bounded
@given(instances(NO_LIMITS))
def test_later_jobs_only_postpone_and_never_change_alpha(drawn: tuple[Instance, Mode]) -> None:
    """With one more job no chunk completes earlier, and all alphas and places of the others stay."""
    instance, mode = drawn
    mode = replace(mode, preempt_running=True)
    before = Result()
    for n in range(1, len(instance.jobs) + 1):
        after = a_online(replace(instance, jobs=instance.jobs[:n]), mode)
        assert after.chunks[: len(before.chunks)] == before.chunks
        assert after.costs[: len(before.costs)] == before.costs
        assert all(after.completion[chunk] >= time for chunk, time in before.completion.items())
        before = after


@bounded
@given(instances())
def test_jobs_wholly_in_the_cloud_take_delta_plus_p(drawn: tuple[Instance, Mode]) -> None:
    """JCT = Delta_c + p(zeta=1) whatever the load; no chunk costs more than the cloud at zeta = 0."""
    instance, mode = drawn
    result = a_online(instance, replace(mode, cloud=True))
    for j, zeta in result.zeta.items():
        if zeta:
            assert result.job_completion(j) == instance.decision_time(j) + instance.delta(j, CLOUD) + instance.p(j, 1)
    for c, cost in zip(result.chunks, result.costs, strict=True):
        bound = F(instance.decision_time(c.job) - c.r + instance.delta(c.job, CLOUD) + instance.p(c.job, 0)) / c.D
        assert cost.q <= bound


@bounded
@given(instances(replace(NO_LIMITS, jobs=1)))
def test_first_chunk_of_an_empty_system_goes_to_the_nearest_worker(drawn: tuple[Instance, Mode]) -> None:
    """To argmin (Delta + p), half of p in fractional mode; ties to the edge, then the lowest server and worker."""
    instance, mode = drawn
    job, result = instance.jobs[0], a_online(instance, mode)
    if result.rejected:
        return
    offers = [
        (instance.delta(0, s) + instance.p(0, 0), 0, s, w)
        for s, server in enumerate(instance.servers)
        for w, kind in enumerate(server.workers)
        if kind == job.type
    ]
    if mode.cloud:
        offers.append((instance.delta(0, CLOUD) + instance.p(0, 1), 1, 0, 0))
    _, cloud, *place = min(offers)
    assert result.chunks[0].place == ((CLOUD, 0) if cloud else tuple(place))


# -- storage (J19) ----------------------------------------------------------------------------------------------------


@blocks(200, 100)
def test_storage_is_never_exceeded(seeds: range) -> None:
    """What is stored on a server, from a job's dispatch to its end, is at most U_s."""
    stored_something = 0
    for seed in seeds:
        instance, mode = seeded(seed)
        result = a_online(instance, mode)
        for t in result.dispatched_at.values():
            for s, server in enumerate(instance.servers):
                if server.storage is not None:
                    held = [
                        instance.jobs[c.job].u
                        for c in result.chunks
                        if c.place[0] == s and result.dispatched_at[c.job] <= t < result.job_completion(c.job)
                    ]
                    assert sum(held) <= server.storage
                    stored_something += sum(held) > 0
    assert stored_something > 50


def storage_run(u: int, D: int) -> Run:
    """Two jobs of D chunks of u MB; the only server stores 4 MB and has two workers. p = 5."""
    jobs = (job(0, 5, D=D, u=u), job(1, 5, D=D, u=u))
    instance = Instance((Server(("0", "0"), ("0", "0"), storage=4),), jobs)
    return product(instance, Mode(cloud=False))


def test_job_without_room_waits_until_a_job_ends() -> None:
    """Job 0 stores 2 * 2 = 4 MB until 5; job 1 is dispatched only then, though a worker would take it at 1."""
    run = storage_run(u=2, D=2)
    assert run.schedule.jobs["admitted"].to_list() == [0, 5]
    assert completions_of_run(run) == [5, 10]


def test_alpha_of_a_job_that_waited_counts_from_its_arrival() -> None:
    """Job 1 is dispatched at 5 and waits since 1: each chunk on a worker of its own, alpha = (5 - 1 + 5) / 2 = 4.5."""
    assert alphas_of_run(storage_run(u=2, D=2))[2:] == pytest.approx([4.5 / SECOND] * 2)


def test_job_that_fits_beside_another_does_not_wait() -> None:
    """With 1 MB a chunk both jobs are stored; equal rates, so job 1 runs behind job 0."""
    run = storage_run(u=1, D=2)
    assert run.schedule.jobs["admitted"].to_list() == [0, 1]
    assert completions_of_run(run) == [5, 10]


def test_job_that_exceeds_all_storage_is_rejected() -> None:
    """Three chunks of 2 MB never fit into 4 MB, and there is no cloud; the reason says so."""
    run = storage_run(u=2, D=3)
    assert run.schedule.jobs["state"].to_list() == ["rejected", "rejected"]
    assert run.schedule.jobs["reason"][0].startswith("never_fits")


def test_storage_is_checked_again_for_every_chunk() -> None:
    """J19: server 0 is nearer and stores one chunk of 3 MB; the second chunk goes to server 1, not on top of it."""
    servers = (Server(("0", "0"), ("0", "0"), storage=5), Server(("0",), ("0",)))
    instance = Instance(servers, (job(0, 5, D=2, delta={0: 0, 1: 4, CLOUD: 1000}, u=3),))
    assert [c.place for c in a_online(instance).chunks] == [(0, 0), (1, 0)]
    assert [row[2] for row in chunks_of_run(product(instance, Mode()))] == [0, 1]


def test_edge_without_workers_leaves_the_cloud_or_nothing() -> None:
    """Where no edge server has a worker all runs in the cloud, 5 + 3, and is rejected where the cloud is not used."""
    instance = Instance((Server(()),), (job(0, 3, delta={0: 0, CLOUD: 5}),))
    assert completions_of_run(product(instance, Mode())) == completions_of_plain(instance, a_online(instance)) == [8]
    assert completions_of_run(product(instance, Mode(cloud=False))) == [None]
    assert a_online(instance, Mode(cloud=False)).rejected == {0}


def test_scarce_pss_without_a_cloud_are_refused_by_name() -> None:
    """J10: two running jobs, one PS and no cloud: the policy cannot go on, and the error says which job and why."""
    instance = Instance((Server(("0", "0"), ("0",)),), (job(0, 5, delta={0: 0}), job(0, 5, delta={0: 0})))
    with pytest.raises(PolicyError, match=r"job '1' .* no PS of its type is free"):
        product(instance, Mode(cloud=False), cloud=False)


# -- long runs and large numbers --------------------------------------------------------------------------------------

PRIMES = (29, 31, 37, 41, 43, 47, 53, 59)
"""As numbers of chunks they have a least common multiple above the largest exact scale."""


def after_many_sizes(*jobs: Job, workers: int = 4) -> Instance:
    """`jobs` behind small jobs whose D_j have no manageable common multiple."""
    small = [job(0, 1, D=D, delta={0: 0, CLOUD: 10**12}) for D in PRIMES]
    return one_server(*small, *jobs, workers=workers)


def test_rounded_weights_keep_lemma_4_to_a_billionth() -> None:
    """With weights rounded to 2^-40 sum alpha is still sum (c - r) / D to 1e-9."""
    jobs = (job(r, 9 + r % 4, D=D, delta={0: r % 3, CLOUD: 400}) for r, D in enumerate(PRIMES))
    run = product(after_many_sizes(*jobs), Mode())
    assert run.metrics["sum_alpha_s"] == pytest.approx(float(flow_of_run(run)) / SECOND, rel=1e-9)


def test_long_chunks_behind_many_sizes_stay_on_the_edge() -> None:
    """50 chunks of 170 s on four workers cost at most 13 * 170 s; the cloud is 10^6 s away and gets none."""
    instance = after_many_sizes(job(10**6, 170 * SECOND, D=50, delta={0: 0, CLOUD: 10**12}))
    lanes = [row[3] for row in chunks_of_run(product(instance, Mode())) if row[0] == len(PRIMES)]
    assert sorted(lanes.count(w) for w in range(4)) == [12, 12, 13, 13]


# -- checkpoint overhead ----------------------------------------------------------------------------------------------


def test_lemma_4_survives_the_overhead_of_a_chunk_preempted_twice() -> None:
    """Overhead 3. Job 0 (p=5) is there at 7 and displaced at 8 by job 1 and at 12 by job 2: each adds 3 to it.

    7-8 job 0 (4 + 3 left), 8-11 job 1, 11-12 job 0 (6 + 3 left), 12-15 job 2, 15-24 job 0. JCT 20 + 4 + 7 = 31.
    alpha: 8; 1 + 3 + (3 + 3) = 10; 4 + 3 + (3 + 3) = 13.
    """
    jobs = (
        job(4, 5, delta={0: 3, CLOUD: 1000}),
        job(7, 3, delta={0: 1, CLOUD: 1000}),
        job(8, 3, delta={0: 4, CLOUD: 1000}),
    )
    run = product(one_server(*jobs), Mode(), physics=Physics(checkpoint_overhead=3))
    assert completions_of_run(run) == [24, 11, 15]
    assert [alpha * SECOND for alpha in alphas_of_run(run)] == pytest.approx([8, 10, 13])


# -- beta in the metrics ----------------------------------------------------------------------------------------------


def test_beta_counts_a_chunk_from_its_release_though_it_waited_for_storage() -> None:
    """Job 0: JCT 5. Job 1 (r=1) waits for storage until 5 and ends at 10: JCT 9. Sum beta = 5 + 9 = sum alpha."""
    numbers = storage_run(u=2, D=2).metrics
    assert numbers["sum_alpha_s"] * SECOND == pytest.approx(14)
    assert numbers["sum_beta_s"] * SECOND == pytest.approx(14)
