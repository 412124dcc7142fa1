"""The smallest counter-examples to what JSAC'22 prints, beside what is done instead; ``docs/errata.md`` names them.

Those on Q, Lemma 4 and the dual are in ``test_aonline_property.py``. All numbers are worked out by hand.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from builders.product import (
    Run,
    alphas_of_run,
    chunks_of_run,
    completions_of_run,
    play,
    ps_of_run,
    runs_of_run,
    scenario_of,
)
from reference.aonline import a_online, fractional_beta
from reference.aonline_model import CLOUD, Instance, Job, Mode, Server
from skedge.core.model.speed import minibatch_seconds
from skedge.core.model.time import SECOND
from skedge.policies.aonline.policy import AOnline

FAR = 1000
F = Fraction


def job(r: int, p: int, *, D: int = 1, delta: dict[int, int] | None = None, u: int = 0) -> Job:
    return Job(r=r, E=1, D=D, B=1, m=p, delta={0: 0, 1: 0, CLOUD: FAR} | (delta or {}), u=u)


def one_server(*jobs: Job, workers: int = 1, ps: int = 9, grain: int = 0) -> Instance:
    return Instance((Server(("0",) * workers, ("0",) * ps),), jobs, grain)


def run(instance: Instance, mode: Mode | None = None) -> Run:
    """The product's run, in µs, which must equal the plain path's."""
    mode = mode or Mode()
    played = play(scenario_of(instance), AOnline(q_mode=mode.q, cloud=mode.cloud))
    plain = a_online(instance, mode)
    assert completions_of_run(played) == [plain.job_completion(j) for j in range(len(instance.jobs))]
    return played


LONG_THEN_SHORT = one_server(job(0, 8), job(6, 3))
"""Job 0 has 2 of 8 left when job 1, of 3, displaces it at 6: job 1 runs 6-9, job 0 9-11."""


# -- Alg. 4 as printed, slot by slot ----------------------------------------------------------------------------------


def shifted_in_place(slots: set[int], shift: int, start: int, horizon: int) -> set[int]:
    """Alg. 4 lines 4-5: for t = t*, t* + 1, ...: if y(t) = 1 set y(t) = 0 and y(t + shift) = 1."""
    y = set(slots)
    for t in range(start, horizon):
        if t in y:
            y.remove(t)
            y.add(t + shift)
    return y


def test_shift_by_the_own_duration_leaves_the_worker_idle() -> None:
    """J1: shifted by its own 8, job 0 gets slots 14 and 15, 9 to 13 are idle; shifted by job 1's 3 it ends at 11."""
    assert shifted_in_place({6, 7}, 8, start=6, horizon=14) == {14, 15}
    assert [row[4:] for row in runs_of_run(run(LONG_THEN_SHORT)) if row[0] == 0] == [(0, 6), (9, 11)]


def test_shift_in_place_moves_slots_twice() -> None:
    """J2: four slots 6-9 shifted by 3 in place: 6 goes to 9 and from there on; no slot is left below the horizon."""
    assert shifted_in_place({6, 7, 8, 9}, 3, start=6, horizon=60) != {9, 10, 11, 12}
    assert len(shifted_in_place({6, 7, 8, 9}, 3, start=6, horizon=60)) == 3
    four_left = run(one_server(job(0, 10), job(6, 3)))
    assert [row[4:] for row in runs_of_run(four_left) if row[0] == 0] == [(0, 6), (9, 13)]


def test_beta_of_a_postponed_chunk_must_grow() -> None:
    """J3: Alg. 4 line 8 adds [0, 8) and [6, 9): 11; but job 0 is uncompleted until 11, so beta sums to 11 + 3 = 14."""
    printed = (8 - 0) + (9 - 6)
    assert printed == 11
    assert a_online(LONG_THEN_SHORT).sum_beta == a_online(LONG_THEN_SHORT).sum_alpha == 14
    assert run(LONG_THEN_SHORT).metrics["sum_beta_s"] * SECOND == pytest.approx(14)


# -- Alg. 2 and 3 -----------------------------------------------------------------------------------------------------

SPILLS = Instance(
    (Server(("0",), ("0",)),),
    (Job(r=0, E=1, D=3, B=4, m=F(3, 4), q=1, b=8, delta={0: 1, CLOUD: 4}),),
)
"""p = 4 at zeta = 0 and 3 at zeta = 1. Edge: (1 + 4)/3, then (1 + 8)/3; cloud: (4 + 3)/3, then (4 + 4)/3."""


def test_zeta_is_zero_once_a_chunk_is_on_the_edge() -> None:
    """J4: with zeta = 1 for ever the second chunk would cost 7/3 in the cloud; it costs 8/3, the edge 9/3."""
    result = a_online(SPILLS)
    assert [cost.q for cost in result.costs] == [F(5, 3), F(8, 3), F(8, 3)]
    assert alphas_of_run(run(SPILLS)) == pytest.approx([q / SECOND for q in (5 / 3, 8 / 3, 8 / 3)])


def test_only_the_remaining_chunks_go_to_the_cloud() -> None:
    """J6: "for all d" would send the first chunk again; it stays on the edge, 1-5, the others end in the cloud at 8."""
    assert [row[2] for row in chunks_of_run(run(SPILLS))] == [0, CLOUD, CLOUD]
    assert [row[4:] for row in runs_of_run(run(SPILLS))] == [(1, 5), (4, 8), (4, 8)]


def test_chunks_of_a_job_spread_over_idle_workers() -> None:
    """J5: if Q is recomputed before the chunk is placed nothing changes: both go to worker 0 and end at 10."""
    played = run(one_server(job(0, 5, D=2), workers=2))
    assert [row[3] for row in chunks_of_run(played)] == [0, 1]
    assert completions_of_run(played) == [5]


def test_ties_go_to_the_edge_then_to_the_lower_number() -> None:
    """J13: edge and cloud both cost 5; of the two idle servers and workers the first is taken."""
    servers = (Server(("0", "0"), ("0",)), Server(("0", "0"), ("0",)))
    played = run(Instance(servers, (job(0, 5, delta={CLOUD: 0}),)))
    assert [row[2:4] for row in chunks_of_run(played)] == [(0, 0)]


def test_rank_uses_the_rounded_duration() -> None:
    """J26: slots of 10. 32 and 36 both take 40; job 1 does not overtake job 0, though 32 < 36, and both end in turn."""
    instance = one_server(job(0, 36), job(10, 32), grain=10)
    assert completions_of_run(run(instance)) == [40, 80]


def test_equal_rates_run_in_order_of_dispatch() -> None:
    """J28: job 1 runs from 0; job 0, dispatched first, arrives at 3 with the same rate and goes before it."""
    instance = one_server(job(0, 5, delta={0: 3}), job(0, 5))
    assert [row[4:] for row in runs_of_run(run(instance))] == [(3, 8), (0, 3), (8, 10)]


def test_speed_shortens_training_and_not_uploads() -> None:
    """J29: at epsilon = 1 a chunk of 8 takes 4; its upload of 4 stays: it ends at 8."""
    instance = replace(one_server(job(0, 8, delta={0: 4})), epsilon=1)
    assert completions_of_run(run(instance)) == [8]


# -- Alg. 1 and 5 -----------------------------------------------------------------------------------------------------

ONE_PS = one_server(job(0, 4, delta={0: 5}), job(0, 9), workers=2, ps=1)
"""Job 1 runs 0-9 with the only PS of the edge; job 0, which comes first by number, starts at 5."""


def test_jobs_get_a_ps_after_the_slot_in_which_they_arrive() -> None:
    """J7: job 0 arrives at 0 and first runs at 5; its PS is given then, and job 0 is not dispatched again."""
    assert [row[:2] for row in chunks_of_run(run(ONE_PS))] == [(0, 0), (1, 0)]
    assert ps_of_run(run(ONE_PS))[0][0][:2] == (5, 9)


def test_a_job_that_runs_on_keeps_its_ps() -> None:
    """J8, J9: at 5 job 0 is looked at first, and o_jsp = 1 for the PS; job 1 holds it and keeps it from 0 to 9."""
    assert ps_of_run(run(ONE_PS))[1] == [(0, 9, 0, 0)]


def test_more_running_jobs_than_pss_need_the_cloud() -> None:
    """J10: Lemma 3 is not "clearly correct": from 5 to 9 two jobs run and the edge has one PS."""
    assert ps_of_run(run(ONE_PS))[0] == [(5, 9, CLOUD, CLOUD)]


def test_one_edge_server_does_not_make_communication_free() -> None:
    """J11: a job wholly on one edge server pays 2q/b: m = 3 and 2q/b = 1 are 4, in the cloud alone they would be 3."""
    instance = one_server(Job(r=0, E=1, D=1, B=1, m=3, q=1, b=2, delta={0: 0, CLOUD: FAR}))
    played = run(instance)
    assert completions_of_run(played) == [4]
    assert played.schedule.runs["colocated"].to_list() == [False]


# -- Lemma 1, Theorem 1, units ----------------------------------------------------------------------------------------


def test_lemma_1_sums_one_slot_too_many() -> None:
    """J27: a chunk that ends at c has slots c - p to c - 1: f = (c - (p + 1)/2 - r)/D, still <= (c - r)/D."""
    for p, c, r, D in product((1, 2, 5), (5, 9), (0, 3), (1, 4)):
        slots = range(c - p, c)
        f = sum(F(t - r, p * D) for t in slots)
        assert f == (F(2 * c - p - 1, 2) - r) / D
        assert f < sum(F(t - r, p * D) for t in (*slots, c)) or c == r
        assert f <= F(c - r, D)


def test_total_completion_time_without_release_dates_is_an_assignment() -> None:
    """J15: R||sum c_j is no NP-hard problem: job i as k-th last on machine s costs k p_is, an assignment problem."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        p = rng.integers(1, 9, (4, 2))
        cost = np.concatenate([k * p for k in range(1, 5)], axis=1)
        rows, columns = linear_sum_assignment(cost)
        assert cost[rows, columns].sum() == least_total_completion(p)


def least_total_completion(p: np.ndarray) -> int:
    """By trying every order of the jobs and every choice of machines."""
    best = 10**9
    for order, machines in product(permutations(range(len(p))), product(range(p.shape[1]), repeat=len(p))):
        free, total = [0] * p.shape[1], 0
        for i, s in zip(order, machines, strict=True):
            free[s] += int(p[i, s])
            total += free[s]
        best = min(best, total)
    return best


def test_gradients_are_in_bytes_and_bandwidth_in_bits() -> None:
    """Units: 30 MB at 1000 Mbit/s take 2 * 8 * 30 / 1000 = 0.48 s both ways, not 0.06."""
    values = (np.array([1.0]), np.array([0.5]), np.array([30.0]), np.array([1000.0]))
    assert minibatch_seconds(*values)[0] == pytest.approx(1.98, rel=1e-12)
    assert minibatch_seconds(*values[:3], np.array([np.inf]))[0] == 1.5


def test_completion_is_an_end_time() -> None:
    """(2j) takes the index of the last slot: 2 for a chunk in slots 0, 1, 2; Lemma 4 needs the end time, 3."""
    result = a_online(one_server(job(0, 3)))
    assert result.sum_alpha == result.job_completion(0) == 3
    assert completions_of_run(run(one_server(job(0, 3)))) == [3]


# -- where even the repaired dual fails -------------------------------------------------------------------------------


def test_repaired_constraint_fails_for_a_cloud_worker_at_zeta_one() -> None:
    """(6a') with the cloud: p = 4 at zeta = 0, 1 at zeta = 1, Delta_c = 2, D = 2, fractional Q.

    The first chunk costs 1 on the edge. The second: edge (4 + 2)/2 = 3, cloud at zeta = 0 (2 + 2)/2 = 2 = alpha. For a
    private cloud worker at zeta = 1 and t = 2 the right side is 2/2 + 1 * (1/2 + 0) = 1.5 < 2.
    """
    job_ = Job(r=0, E=1, D=2, B=1, m=1, q=3, b=2, delta={0: 0, CLOUD: 2})
    instance = one_server(job_)
    result = a_online(instance, Mode("fractional"))
    assert [cost.q for cost in result.costs] == [1, 2]
    assert (instance.p(0, 0), instance.p(0, 1)) == (4, 1)
    assert F(2, 2) + instance.p(0, 1) * F(1, 2) == F(3, 2) < 2


def test_repaired_constraint_fails_with_storage_limits() -> None:
    """(9a) with eta = 0: job 1 (r=1, p=1) waits for storage until 100: alpha = 99.5; worker 1 idles, right side 1."""
    servers = (Server(("0", "0"), ("0", "0"), storage=4),)
    instance = Instance(servers, (job(0, 100, u=4), job(1, 1, u=1)))
    result = a_online(instance, Mode("fractional", cloud=False))
    assert result.costs[1].q == F(199, 2)
    assert F(1 - 1) + 1 * (1 + fractional_beta(result, (0, 1), 1)) == 1
