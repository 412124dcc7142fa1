"""Simulated studies: what their files ask for, how claims are judged by hand-made numbers, one carried out whole."""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from builders.paths import TRACES
from builders.studies import WRITTEN, read_study, repeated, verdicts
from skedge.core.errors import InputError
from skedge.core.registry import make_policy
from skedge.prepare import offers, prepare_policy
from skedge.runs.result_cache import ResultCache
from skedge.runs.tasks import Executor
from skedge.scenario.file import scenario_from_dict
from skedge.scenario.save import digest_of
from skedge.studies.kinds.course import BUSY, Course
from skedge.studies.kinds.feasibility import Feasibility
from skedge.studies.kinds.sweep import Gain, Sweep
from skedge.studies.outcome import caveats_of
from skedge.studies.simulate import run_simulations

Skedge = Callable[..., Any]
FILES = sorted(Path(str(importlib.resources.files("skedge.studies")), "figures").glob("*.toml"))
SWEEPS = [path for path in FILES if isinstance(read_study(path).settings, Sweep)]
REAL = TRACES / "google2011" / "bench_google2011_days0-6.parquet"

TWO = Sweep(
    kind="sweep", base="s4", vary="workload.synthetic.jobs", values=[10, 20], axis="jobs", policies=["a", "b"],
    best="a", metric="utility_total", grows=True,
)  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are made in a temporary one."""
    monkeypatch.chdir(tmp_path)


def rows(**by_policy: list[list[float]]) -> pl.DataFrame:
    """Values by policy: a list for each seed, a number for each value of TWO."""
    return pl.DataFrame(
        [
            {"policy": policy, "seed": seed, "at": at, "value": value, "done": 1.0}
            for policy, of in by_policy.items()
            for seed, numbers in enumerate(of)
            for at, value in zip(TWO.values, numbers, strict=True)
        ]
    )


def test_jobs_finished_after_the_horizon_stand_beside_the_metric() -> None:
    """Means over two seeds of 1 and 3 late jobs; no column where no run has a horizon."""
    values = rows(a=[[1.0, 2.0], [3.0, 4.0]], b=[[1.0, 1.0], [1.0, 1.0]])
    late = values.with_columns(late=pl.col("seed") * 2 + 1)
    found = TWO.outcome(late)
    assert found.columns[-1] == "jobs finished after T"
    assert [row[-1].mean for row in found.rows] == [2.0] * 4  # type: ignore[union-attr]
    for without in (values, values.with_columns(late=pl.lit(None, pl.Int64))):
        assert TWO.outcome(without).columns == ("policy", "jobs", "utility_total")


# --- the files


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_a_simulated_study_asks_for_scenarios_that_its_policies_fit(path: Path) -> None:
    """Labels are unique; the field that is varied varies; the best is one of the policies."""
    study = read_study(path)
    settings = study.settings
    assert isinstance(settings, Sweep)
    assert f"{study.paper}-{study.figure}" == path.stem
    named = {
        settings.best,
        settings.base_policy,
        *settings.rises,
        *settings.falls,
        *(p for of in (*settings.below, *settings.gap_grows) for p in of),
        *((*settings.busy, *settings.idle) if isinstance(settings, Course) else ()),
    }
    assert named - {None} <= set(settings.policies)
    if settings.with_trace and not REAL.is_file():
        pytest.skip("the real trace is not here (it is not shipped)")
    asked = list(settings.simulations(1, REAL if settings.with_trace else None))
    assert len({one.label for one in asked}) == len(asked)
    digests = set()
    for one in {str(one.data): one for one in asked}.values():
        scenario = scenario_from_dict(one.data, one.label, Path())
        digests.add(digest_of(scenario))
        assert scenario.seed == one.seed
    variants = len(settings.variants) if isinstance(settings, Gain) else 1
    in_policies = settings.vary is None and not settings.cases
    if settings.cases:
        assert len(digests) > 1, "two cases may be one: a cost is rounded up to whole slots"
    else:
        # policies with fields of their own have scenarios of their own
        assert len(digests) == (1 + len(settings.set_for)) * (1 if in_policies else variants * len(settings.values))
    policies = {one.policy for one in asked}
    each = [*settings.policies, *settings.beside]
    assert len(policies) == len(each) * (len(settings.values) if in_policies else 1)
    for policy in policies:
        assert make_policy(policy).needs <= offers(scenario)
    prepare_policy(settings.best or min(policies), scenario)


def test_seeds_take_parts_of_the_trace_that_do_not_overlap(tmp_path: Path) -> None:
    """100 jobs each, one after the other; the number of jobs is varied within a seed's part."""
    study = next(read_study(path) for path in SWEEPS if path.stem == "pdors-fig13").settings
    assert isinstance(study, Sweep)
    parts = {
        (one.seed, one.data["workload"]["trace"]["skip"]) for s in (0, 1, 2) for one in study.simulations(s, tmp_path)
    }
    assert parts == {(0, 0), (1, 100), (2, 200)}
    firsts = {one.data["workload"]["trace"]["first"] for one in study.simulations(0, tmp_path)}
    assert firsts == set(study.values)


def test_a_study_of_a_trace_asks_for_it_and_others_refuse_one(skedge: Skedge) -> None:
    """One sentence, and no folder."""
    told = skedge("reproduce", "pdors", "fig12", "--out", "f")
    assert (told.code, told.words) == (
        1, "skedge: this study takes the arrivals of a trace: give --trace FILE, Google's table of jobs",
    )  # fmt: skip
    assert "takes no trace" in skedge("reproduce", "pdors", "fig8", "--trace", "x", "--out", "f").words
    assert not Path("f").exists()
    with pytest.raises(InputError):
        list(TWO.simulations(0, Path("x")))


# --- judging


def test_the_best_is_ahead_everywhere_and_its_lead_grows() -> None:
    """Leads of 1 with 10 jobs, and of 2 and 4 with 20."""
    outcome = TWO.outcome(repeated(rows(a=[[5, 9], [7, 11]], b=[[4, 7], [6, 7]]), 5))
    assert verdicts(outcome) == "yyy"
    assert [part.text for part in outcome.parts] == [
        "a is above b with 10 jobs", "a is above b with 20 jobs", "the gap between a and b grows with the jobs",
    ]  # fmt: skip
    assert outcome.parts[0].numbers.startswith("6.00 [")
    assert outcome.parts[2].numbers.startswith("0.2000 [")


def test_a_tie_is_no_lead_and_a_falling_one_does_not_grow() -> None:
    """Equal at 10 jobs; and 3 ahead, then 1."""
    assert verdicts(TWO.outcome(repeated(rows(a=[[4, 9]], b=[[4, 7]]), 5))) == "nyy"
    assert verdicts(TWO.outcome(repeated(rows(a=[[7, 8]], b=[[4, 7]]), 5))) == "yyn"


def test_fields_can_be_set_for_the_runs_of_one_policy() -> None:
    """Uploads are free for Preemptive alone; both have the same jobs, which arrive at the same times."""
    free = {"workload.upload_edge_slots": [0, 0], "workload.upload_cloud_slots": [0, 0]}
    settings = {
        "kind": "sweep", "base": "s2", "vary": "workload.synthetic.jobs", "values": [10], "axis": "jobs",
        "policies": ["batch:T=150", "preemptive"], "metric": "jct_total_s", "set_for": {"preemptive": free},
    }  # fmt: skip
    batch, preemptive = (
        scenario_from_dict(s.data, "x", Path()) for s in Sweep.model_validate(settings).simulations(3, None)
    )
    assert (preemptive.delays.hi == 0).all()
    assert (batch.delays.hi > 0).any()
    columns = [name for name in batch.jobs.frame.columns if not name.startswith("upload")]
    assert batch.jobs.frame.select(columns).equals(preemptive.jobs.frame.select(columns))
    assert (batch.cluster.workers == preemptive.cluster.workers).all()
    with pytest.raises(ValidationError, match="set_for names srtf, which is no policy of the study: batch, preemptive"):
        Sweep.model_validate({**settings, "set_for": {"srtf": free}})


def test_policies_beside_are_shown_and_not_judged() -> None:
    """They are run, have rows in the table and a line, and are part of no claim."""
    study = TWO.model_copy(update={"beside": ["c"]})
    outcome = study.outcome(rows(a=[[3, 5]] * 5, b=[[2, 3]] * 5, c=[[9, 9]] * 5))
    assert verdicts(outcome) == verdicts(TWO.outcome(rows(a=[[3, 5]] * 5, b=[[2, 3]] * 5)))
    assert [row[0] for row in outcome.rows] == ["a", "a", "b", "b", "c", "c"]
    assert [line.label for line in outcome.figure.lines] == ["a", "b", "c"]
    assert {one.policy for one in study.simulations(0, None)} == {"a", "b", "c"}


def test_the_bound_on_the_jobs_that_can_be_complete_may_be_shown() -> None:
    """Of 30 jobs of PD-ORS on 3 machines most cannot be complete by T; no policy completes more than the bound."""
    sizes = {"set": {"cluster.draw.servers": 3}, "values": [30], "policies": ["fifo", "drf"], "best": None}
    study = TWO.model_copy(update=sizes | {"also": ["completable_jobs"], "grows": False})
    table = run_simulations(list(study.simulations(0, None)), study.metrics, lambda *_: None)
    bound = table[0]["completable_jobs"]
    assert bound == table[1]["completable_jobs"]
    assert 0 < bound < 30
    assert all(30 * row["done"] <= bound for row in table)


def test_where_less_is_better_less_wins() -> None:
    """The same numbers the other way round."""
    lower = TWO.model_copy(update={"lower": True})
    assert verdicts(lower.outcome(repeated(rows(a=[[4, 7]], b=[[7, 12]]), 5))) == "yyy"
    assert verdicts(lower.outcome(repeated(rows(a=[[7, 12]], b=[[4, 7]]), 5))) == "nnn"


def test_a_gap_grows_in_the_metric_that_is_compared_or_in_another() -> None:
    """Rates of a 0.5, then 0.75, its lead of b's 0.5, then 0.25; in hours b's lead of a is 10, then 20."""
    hours = {("a", 10): 10.0, ("a", 20): 60.0, ("b", 10): 20.0, ("b", 20): 80.0}
    table = repeated(rows(a=[[10, 60]], b=[[20, 80]]), 5)
    table = table.with_columns(hours=pl.Series([hours[row] for row in table.select("policy", "at").iter_rows()]))
    claim = {"best": None, "grows": False, "lower": True, "base_policy": "b", "gap_grows": [("a", "b")]}
    assert verdicts(TWO.model_copy(update=claim).outcome(table)) == "n"
    assert verdicts(TWO.model_copy(update={**claim, "gap_grows": [("b", "a")]}).outcome(table)) == "y"
    outcome = TWO.model_copy(update={**claim, "also": ["hours"], "gap_metric": "hours"}).outcome(table)
    assert verdicts(outcome) == "y"
    assert [part.text for part in outcome.parts] == ["the gap between a and b grows with the jobs"]
    assert outcome.parts[0].numbers.startswith("1.0000 [")


def test_gaps_are_of_a_metric_that_is_measured() -> None:
    with pytest.raises(ValueError, match="gap_metric 'hours' is none of also: jct_mean_s"):
        Sweep(**{**TWO.model_dump(exclude={"grows"}), "also": ["jct_mean_s"], "gap_metric": "hours"})


def test_other_claims_by_hand() -> None:
    """a is half of b with 10 jobs and two thirds with 20; a rises from 5 to 8, b from 10 to 12."""
    table = repeated(rows(a=[[5, 8]], b=[[10, 12]]), 5)

    def judged(**claim: Any) -> str:
        return verdicts(TWO.model_copy(update={"best": None, "grows": False, **claim}).outcome(table))

    assert judged(below=[("a", "b")]) == "yy"
    assert judged(below=[("b", "a")]) == "nn"
    assert judged(rises=["a", "b"], falls=["b"]) == "yyn"
    assert judged(base_policy="b", rises=["a"], falls=["b"]) == "yn", "from 0.5 to 0.67; b is 1 throughout"
    assert judged(flat=0.5) == "y", "3 of 6.5"
    assert judged(flat=0.4) == "n"
    assert judged(log=True, flat=0.61) == "y", "8 / 5"
    assert judged(log=True, flat=0.59) == "n"
    assert judged(at_most=7.0) == "yn"
    assert judged(largest_at=20) == "y"
    assert judged(largest_at=10) == "n"


def test_gaps_may_be_those_of_the_metric_where_its_logarithm_is_averaged() -> None:
    """10 against 100, then 100 against 500: the ratio falls from 10 to 5, the difference grows from 90 to 400."""
    study = TWO.model_copy(update={"lower": True, "log": True})
    table = repeated(rows(a=[[10, 100]], b=[[100, 500]]), 8)
    assert verdicts(study.outcome(table)) == "yyn"
    absolute = study.model_copy(update={"absolute_gaps": True}).outcome(table)
    assert verdicts(absolute) == "yyy"
    assert all(part.ranked for part in absolute.parts)
    assert absolute.parts[2].values == pytest.approx([31.0] * 8), "310 more for 10 jobs more"
    named = study.model_copy(update={"values": ["x", "y"], "grows": False, "most_at": "y"})
    by_name = table.with_columns(at=pl.col("at").replace_strict({10: "x", 20: "y"}))
    assert verdicts(named.outcome(by_name)) == "yyn"
    assert verdicts(named.model_copy(update={"absolute_gaps": True}).outcome(by_name)) == "yyy"


def test_the_lead_is_largest_at_one_name() -> None:
    """3 under x, 1 under y."""
    named = TWO.model_copy(update={"values": ["x", "y"], "grows": False, "most_at": "x"})
    table = repeated(rows(a=[[5, 4]], b=[[2, 3]]).with_columns(at=pl.col("at").replace_strict({10: "x", 20: "y"})), 5)
    assert verdicts(named.outcome(table)) == "yyy"
    assert verdicts(named.model_copy(update={"most_at": "y"}).outcome(table)) == "yyn"


def test_cases_are_named_settings_and_are_compared_in_pairs() -> None:
    """a is 5 under the first and 8 under the second; b stands beside."""
    cases = {"few": {"workload.synthetic.jobs": 3}, "many": {"workload.synthetic.jobs": 4}}
    study = Sweep(  # type: ignore[call-arg] # values are made of the cases
        kind="sweep", base="s4", cases=cases, axis="jobs", policies=["a", "b"], metric="utility_total",
        also=["late_share"], below_at=[("few", "many"), ("many", "few")],
    )  # fmt: skip
    assert study.values == ["few", "many"]
    assert [one.data["workload"]["synthetic"]["jobs"] for one in study.simulations(0, None)] == [3, 3, 4, 4]
    named = pl.col("at").replace_strict({10: "few", 20: "many"})
    outcome = study.outcome(
        repeated(rows(a=[[5, 8]], b=[[1, 1]]).with_columns(at=named, late_share=pl.lit(None, pl.Float64)), 5)
    )
    assert verdicts(outcome) == "yn"
    assert outcome.columns == ("policy", "jobs", "utility_total", "late_share")
    assert {row[-1] for row in outcome.rows} == {None}, "a metric that no run has"


def test_a_course_is_judged_by_its_largest_share() -> None:
    """a has all workers for a slot, b never more than 90 %; after its end a run has none."""
    study = Course(
        kind="course", base="s1", values=["x"], axis="workload", policies=["a", "b"], metric="makespan_s",
        below=[("a", "b")], busy=["a", "b"], slots=3,
    )  # fmt: skip
    of = {"a": (2.0, [0.5, 1.0]), "b": (3.0, [0.2, 0.9, 0.9])}
    table = pl.DataFrame(
        [
            {"policy": p, "seed": 0, "at": "x", "value": value, "done": 1.0, BUSY: busy}
            for p, (value, busy) in of.items()
        ]
    )
    outcome = study.outcome(repeated(table, 5))
    assert verdicts(outcome) == "yyn"
    assert [[value.mean for value in line.values] for line in outcome.figure.lines] == [
        [0.5, 1.0, 0.0],
        [0.2, 0.9, 0.9],
    ]
    assert verdicts(study.model_copy(update={"busy": ["a"], "idle": ["a", "b"]}).outcome(repeated(table, 5))) == "yyny"


def test_a_gain_is_the_ratio_of_means_by_variant() -> None:
    """(3 + 5) / (2 + 2) = 2 at 10 jobs against 6 / 4: larger in the first."""
    gain = Gain(**{**TWO.model_dump(), "kind": "gain", "values": [10], "variants": {"much": {}, "little": {}}})
    table = pl.DataFrame(
        [
            {"variant": variant, "policy": policy, "seed": seed, "at": 10, "value": value}
            for variant, of in {
                "much": {"a": [3.0, 5.0], "b": [2.0, 2.0]},
                "little": {"a": [3.0, 3.0], "b": [2.0, 2.0]},
            }.items()
            for policy, values in of.items()
            for seed, value in enumerate(values)
        ]
    )
    outcome = gain.outcome(table)
    assert [part.numbers for part in outcome.parts] == [
        "2.000 against 1.500 times its utility_total",
        "2.000 times as much",
        "1.500 times as much",
    ]
    assert verdicts(gain.outcome(repeated(table, 10))) == "yyy"
    assert outcome.figure.lines[0].values[0].mean == 2.0
    assert outcome.figure.lines[1].values[0].mean == 1.5
    other_way = table.with_columns(variant=pl.col("variant").replace({"much": "little", "little": "much"}))
    assert verdicts(gain.outcome(repeated(other_way, 10))) == "nyy"


def test_a_curve_meets_the_line_where_both_are_equal() -> None:
    """G of (29) solves (1/G - 1)^2 G W_b/3 = ln(3r/delta); there 3 exp(-G W_a/2) is delta."""
    study = Feasibility(kind="feasibility", cover=[20, 40], rows=401, least=15, cover_rows=1, delta=(0.02, 0.1))
    for cover in (20, 40):
        delta = study.meets(cover)
        gain = 2 / cover * math.log(3 / delta)
        assert (1 / gain - 1) ** 2 * gain * 15 / 3 == pytest.approx(math.log(3 * 401 / delta), rel=1e-6)
    assert verdicts(study.outcome(pl.DataFrame(study.points()))) == "y"
    backwards = study.model_copy(update={"cover": [40, 20]})
    assert verdicts(backwards.outcome(pl.DataFrame(backwards.points()))) == "n"


# --- carried out


def test_a_figure_from_its_formula_is_written(skedge: Skedge) -> None:
    """The folder has what that of any study has."""
    told = skedge("reproduce", "pdors", "fig5", "--out", "f", "--json").json
    assert (told["verdict"], told["runs"], told["violations"]) == ("holds", 0, {})
    assert {path.name for path in Path("f").iterdir()} == WRITTEN


def test_a_sweep_is_carried_out_and_verified(monkeypatch: pytest.MonkeyPatch, skedge: Skedge) -> None:
    """Fig. 8 with 3 and 6 jobs, one seed: four runs, all verified; the same again gives the same numbers."""
    whole = read_study(next(path for path in SWEEPS if path.stem == "pdors-fig8"))
    small = {"values": [3, 6], "set": {"cluster.draw.servers": 5}, "beside": []}
    study = whole.model_copy(update={"settings": whole.settings.model_copy(update=small)})
    monkeypatch.setattr("skedge.cli.study.find_study", lambda *_: study)
    first, again = (skedge("reproduce", "pdors", "fig8", "--seeds", 1, "--out", o, "--json").json for o in ("f", "g"))
    assert (first["runs"], first["violations"]) == (4, {})
    assert first["table"] == again["table"]


def test_seeds_are_added_until_the_claim_is_decided(monkeypatch: pytest.MonkeyPatch, skedge: Skedge) -> None:
    """Looks after 5, 10 and 12 seeds; it is decided at the second."""
    whole = read_study(next(path for path in SWEEPS if path.stem == "pdors-fig8"))
    small = {"values": [3], "set": {"cluster.draw.servers": 5}, "grows": False, "beside": []}
    study = whole.model_copy(update={"settings": whole.settings.model_copy(update=small), "seeds": 5, "cap": 12})
    monkeypatch.setattr("skedge.cli.study.find_study", lambda *_: study)

    def measured(asked: list[Any], metrics: tuple[str, ...], *_: Any) -> list[dict[str, Any]]:
        seen.append((metrics, {one.seed for one in asked}))
        return [
            {
                "seed": one.seed,
                **one.place,
                "value": 1.0 + (one.policy == "oasis" and one.seed > 11),
                "late": None,
                "done": 1.0,
            }
            for one in asked
        ]

    seen: list[Any] = []
    monkeypatch.setattr("skedge.studies.runner.simulate.run_simulations", measured)
    found = skedge("reproduce", "pdors", "fig8", "--out", "f", "--json").json
    assert seen == [(("utility_total",), set(range(8, 13))), (("utility_total",), set(range(13, 18)))]
    assert (found["verdict"], found["seeds"]) == ("does not hold", list(range(8, 18)))


def test_studies_of_the_same_runs_share_them_whatever_they_compare(tmp_path: Path) -> None:
    """The second study of two policies finds all four runs of the first, and has its own metric of them."""
    study = TWO.model_copy(update={"set": {"cluster.draw.servers": 5}, "values": [3, 4], "policies": ["drf", "fifo"]})
    asked = list(study.simulations(0, None))
    kept = ResultCache(tmp_path / "kept")
    first = run_simulations(asked, ("utility_total",), lambda *_: None, Executor(1, None, kept))
    second = run_simulations(asked, ("acceptance_share", "utility_total"), lambda *_: None, Executor(1, None, kept))
    assert len(list((tmp_path / "kept").iterdir())) == 4
    assert [row["utility_total"] for row in second] == [row["value"] for row in first]
    here = run_simulations(asked, ("acceptance_share", "utility_total"), lambda *_: None)
    assert here == second


def test_a_claim_about_hardly_any_job_or_about_nothing_says_so() -> None:
    """Counts that are 0 everywhere, and policies that complete few of the jobs."""
    table = rows(pdors=[[0.0, 0.0]], oasis=[[1.0, 2.0]]).with_columns(done=pl.lit(0.12))
    assert caveats_of(table, "preemptions") == (
        "preemptions of pdors is 0 in each of its 2 runs",
        "no policy completes more than 12% of the jobs by T in the mean",
    )
    assert caveats_of(rows(pdors=[[0.5, 1.0]], oasis=[[1.0, 2.0]]), "preemptions") == ()


def test_a_claim_that_says_little_at_some_points_names_them() -> None:
    table = rows(pdors=[[0.0, 1.0], [0.0, 2.0]], oasis=[[1.0, 2.0], [1.0, 2.0]])
    first, second = table["at"].unique(maintain_order=True)
    done = pl.when(pl.col("at") == second).then(0.2).otherwise(0.9)
    assert caveats_of(table.with_columns(done=done), "preemptions") == (
        f"at {first} preemptions of pdors is 0 in each run",
        f"no policy completes more than 25% of the jobs by T in the mean at {second} (20%)",
    )
