from __future__ import annotations

from fractions import Fraction

import pytest

from builders.product import HOUR, Run, alphas_of_run, chunks_of_run, play, ps_of_run, runs_of_run, scenario_of
from golden.aonline_cases import CASES, Case
from reference.aonline import a_online, fractional_beta, fractional_flow
from reference.aonline_model import CLOUD, Result
from skedge.core.model.time import SECOND
from skedge.policies.aonline.policy import AOnline

all_cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def plain(case: Case) -> Result:
    return a_online(case.instance, case.mode)


def product(case: Case) -> Run:
    """Playing a run verifies it."""
    return play(scenario_of(case.instance, HOUR), AOnline(q_mode=case.mode.q, cloud=case.mode.cloud))


def in_us(time: Fraction | int) -> int:
    exact = Fraction(time) * HOUR
    assert exact.denominator == 1
    return int(exact)


@all_cases
def test_plain_path_gives_the_hand_walked_chunks(case: Case) -> None:
    """Server, worker, zeta, p, alpha and its four terms, chunks postponed and completion of every chunk."""
    result = plain(case)
    rows = tuple(
        (
            c.job, c.d, c.place[0], CLOUD if c.place[0] == CLOUD else c.place[1], result.zeta[c.job], c.p,
            cost.q, cost.terms, cost.postponed, result.completion[c.job, c.d],
        )
        for c, cost in zip(result.chunks, result.costs, strict=True)
    )  # fmt: skip
    assert rows == case.chunks


@all_cases
def test_plain_path_gives_the_hand_walked_workers_and_pss(case: Case) -> None:
    """What every worker ran when, the PSs of every job, preemptions, JCT, and both sums of Lemma 4."""
    result, instance = plain(case), case.instance
    runs = {w: tuple((c.job, c.d, *t) for c, *t in result.timelines.get(w, [])) for w in case.workers}
    assert runs == case.workers
    assert tuple(tuple(result.ps[j]) for j in range(len(instance.jobs))) == case.ps
    assert tuple(result.job_completion(j) for j in range(len(instance.jobs))) == case.completions
    assert result.preemptions == case.preemptions
    assert sum(result.job_completion(j) - job.r for j, job in enumerate(instance.jobs)) == case.total_jct
    if case.mode.q == "fractional":
        assert result.sum_alpha == sum(map(fractional_flow, result.timelines.values())) == case.dual_sum
    else:
        assert result.sum_alpha == result.sum_beta == case.dual_sum


@all_cases
def test_product_gives_the_hand_walked_chunks(case: Case) -> None:
    """Server, worker, chunks postponed and alpha of every chunk, and p and zeta of its runs."""
    run = product(case)
    assert chunks_of_run(run) == [(job, d, s, w, late) for job, d, s, w, *_, late, _ in case.chunks]
    assert alphas_of_run(run) == pytest.approx([float(row[6]) * HOUR / SECOND for row in case.chunks], rel=1e-12)
    spent: dict[tuple[int, int], int] = {}
    zeta = {}
    for job, d, start, end, colocated in run.schedule.runs.select("job", "chunk", "start", "end", "colocated").rows():
        spent[job, d] = spent.get((job, d), 0) + end - start
        zeta[job, d] = int(colocated)
    assert spent == {row[:2]: in_us(row[5]) for row in case.chunks}
    assert zeta == {row[:2]: row[4] for row in case.chunks}


@all_cases
def test_product_gives_the_hand_walked_completions(case: Case) -> None:
    """c_jd of every chunk and c_j of every job, exactly to the microsecond; JCT from them."""
    run = product(case)
    ends: dict[tuple[int, int], int] = {}
    for job, d, end in run.schedule.runs.select("job", "chunk", "end").rows():
        ends[job, d] = max(end, ends.get((job, d), 0))
    assert ends == {row[:2]: in_us(row[9]) for row in case.chunks}
    assert run.schedule.jobs["completion"].to_list() == [in_us(c) for c in case.completions]
    assert run.metrics["jct_total_s"] == pytest.approx(float(case.total_jct) * HOUR / SECOND, rel=1e-12)


@all_cases
def test_product_gives_the_hand_walked_workers_and_pss(case: Case) -> None:
    """What every edge worker ran when, which PS each job held when, and the number of preemptions."""
    run = product(case)
    edge = [row for row in runs_of_run(run) if row[2] != CLOUD]
    expected = [(j, d, *w, in_us(a), in_us(b)) for w, runs in case.workers.items() for j, d, a, b in runs]
    assert edge == sorted(expected)
    times = {j: [(in_us(a), in_us(b), *place) for a, b, *place in rows] for j, rows in enumerate(case.ps)}
    assert ps_of_run(run) == times
    assert run.metrics["preemptions"] == case.preemptions


@all_cases
def test_product_gives_both_sums_of_lemma_4(case: Case) -> None:
    """Sum alpha from the decisions, sum beta from the lanes over time; in fractional mode alpha sums another flow."""
    numbers, expected = product(case).metrics, float(case.dual_sum) * HOUR / SECOND
    assert numbers["sum_alpha_s"] == pytest.approx(expected, rel=1e-12)
    if case.mode.q != "fractional":
        assert numbers["sum_beta_s"] == pytest.approx(expected, rel=1e-12)


def test_fractional_case_satisfies_the_constraint_worked_out_by_hand() -> None:
    """(6a') of job 2 on server 1 at 5, when its data would be there: 2 <= (5 - 4)/1 + 2 (1 + 3/8) = 3.75."""
    case = CASES["fractional Q"]
    result = plain(case)
    assert fractional_beta(result, (1, 0), 5) == Fraction(3, 8)
    assert result.costs[2].q == 2
