"""Studies of the papers' figures: what needs no Ray. Files are read, claims are judged by hand-made numbers, drawn."""

from __future__ import annotations

import importlib.resources
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from builders.studies import WRITTEN, read_study, repeated, verdicts
from skedge.analysis.intervals import Estimate
from skedge.scenario.file import scenario_from_dict
from skedge.studies.figure import Figure, Line, svg, ticks
from skedge.studies.judge import Part, Verdict
from skedge.studies.kinds.curves import Curves
from skedge.studies.kinds.disturbed import Disturbed
from skedge.studies.kinds.preemptions import Preemptions
from skedge.studies.kinds.rates import Rates
from skedge.studies.outcome import Outcome, format_cell, mean_of, points, slope
from skedge.studies.page import StudyResults, page, write_findings
from skedge.studies.study import Study, find_study, studies_of
from skedge.studies.trial import Trial, TrialResult, deployments, displaced_workers, seeded

Skedge = Callable[..., Any]
FILES = sorted(Path(str(importlib.resources.files("skedge.studies")), "figures").glob("*.toml"))
LIVE = [path for path in FILES if read_study(path).servers]
JOB = {"arrival_s": 0, "epochs": 4, "chunks": 2, "minibatches": 3, "minibatch_s": 0.1}
TRAIN = {"train": {"factory": "skedge.live.examples:digits", "args": {"model": "lenet", "chunks": 2}}}


def job(name: str, **more: Any) -> dict[str, Any]:
    return {"id": name, **TRAIN, **more}


# --- the files


@pytest.mark.parametrize("path", LIVE, ids=lambda path: path.stem)
def test_a_study_file_has_its_figure_as_name_and_asks_for_scenarios_that_are_valid(path: Path) -> None:
    """Every trial of two seeds, as a scenario; labels are unique, and as many trials for each seed."""
    study = read_study(path)
    assert study.name == path.stem
    servers = [server.model_dump(exclude_defaults=True) for server in study.servers]
    trials = [study.settings.trials(study.job, seed) for seed in (0, 1)]
    assert len(trials[0]) == len(trials[1])
    assert len({trial.label for of in trials for trial in of}) == 2 * len(trials[0])
    for trial in trials[0] + trials[1]:
        cluster = {"servers": servers, **study.scenario.get("cluster", {})}
        data = {**study.scenario, "cluster": cluster, "workload": {"jobs": list(trial.jobs)}}
        scenario = scenario_from_dict(data, trial.label, Path())
        assert trial.watched <= set(scenario.jobs.ids)
        for one in trial.jobs:
            assert one["train"]["seed"] == one["train"]["args"]["seed"] == trial.seed
            chunks = scenario.jobs.chunks[scenario.jobs.index[one["id"]]]
            assert one["train"]["args"]["chunks"] == chunks, "data are cut as the job is"


def test_the_command_lists_the_figures_of_a_paper_with_their_claims(skedge: Skedge) -> None:
    """For people and for machines; the figures are the paper's claims, accuracy is ours."""
    told = {row["figure"]: row for row in skedge("reproduce", "jsac22", "--json").json}
    theirs = ("fig10", "fig11", "fig12", "fig13", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9")
    figures = {**dict.fromkeys(("accuracy", "sec6", "slots"), True), **dict.fromkeys(theirs, False)}
    assert {figure: row["ours"] for figure, row in told.items()} == figures
    printed = skedge("reproduce", "jsac22")
    assert printed.code == 0
    assert "all models converge" in printed.out
    assert told["fig3"]["claim"] == "all models converge"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nobody99",), "paper 'nobody99' has no studies; there are cross, jsac22, okita, pdors, she"),
        (
            ("jsac22", "fig99"),
            "figure 'fig99' of jsac22 is not there; there are accuracy, fig10, fig11, fig12, fig13, fig3, fig4, fig5, "
            "fig6, fig7, fig8, fig9, sec6, slots",
        ),
    ],
)
def test_an_unknown_paper_or_figure_is_one_sentence(skedge: Skedge, words: tuple[str, ...], says: str) -> None:
    """It names those that there are."""
    told = skedge("reproduce", *words)
    assert (told.code, told.out) == (1, "")
    assert told.words == f"skedge: {says}"


def test_a_folder_that_is_there_is_refused_before_anything_runs(skedge: Skedge, tmp_path: Path) -> None:
    """Nothing is in it afterwards either."""
    told = skedge("reproduce", "jsac22", "fig3", "--out", tmp_path)
    assert told.code == 1
    assert "exists already" in told.words
    assert list(tmp_path.iterdir()) == []


# --- numbers


def test_the_slope_is_that_of_least_squares() -> None:
    """By hand: x - mean = -1, 0, 1; (-2 + 9) / 2."""
    assert slope([1, 2, 3], [2, 4, 9]) == 3.5


def test_a_number_is_shown_with_its_interval() -> None:
    """None for fewer than five values."""
    assert format_cell(mean_of([1.0, 3.0])) == "2.00"
    assert format_cell(mean_of([1.0] * 5)) == "1.00 [1.00, 1.00]"
    assert format_cell(Estimate(20.0, 15.5, 27.75), 1) == "20.0 [15.5, 27.8]"
    assert format_cell(Estimate(0.0187, 0.0102, 0.2)) == "0.0187 [0.0102, 0.2000]"
    assert format_cell(Estimate(40748219.77, 4e7, 5e7)) == "40,748,220 [40,000,000, 50,000,000]"
    assert format_cell(Estimate(0.0)) == "0.00"
    assert format_cell(points(mean_of([0.125])), 1) == "12.5"
    assert [format_cell(cell) for cell in ("a", 3, None, 0.125)] == ["a", "3", "–", "0.125"]


def test_displaced_workers_are_counted_alike_for_chunks_and_gangs() -> None:
    """Chunk 0 of job 0 is displaced at 5 while chunk 1 begins there and then; job 1, a gang of 2 + 1, moves at 5 and
    stops at 9; job 2 ends undisturbed."""
    rows = [
        (0, 0, 1, 0, 5, True),
        (0, 1, 1, 5, 8, False),
        (0, 0, 1, 8, 9, False),
        (1, None, 2, 0, 5, True),
        (1, None, 1, 0, 5, True),
        (1, None, 2, 5, 9, True),
        (1, None, 1, 5, 9, True),
        (1, None, 3, 12, 15, False),
        (2, None, 2, 9, 12, False),
    ]
    runs = pl.DataFrame(rows, ["job", "chunk", "workers", "start", "end", "preempted"], orient="row")
    assert displaced_workers(runs) == {0: 1, 1: 3}


def test_a_seeded_job_leaves_the_one_it_was_made_of() -> None:
    """Data, first parameters and order of samples follow the seed."""
    before = job("a")
    after = seeded(before, 7)
    assert after["train"]["seed"] == after["train"]["args"]["seed"] == 7
    assert before == job("a")


# --- Fig. 3


def curves(**more: Any) -> Curves:
    given = {"policy": "aonline", "jobs": [job("a"), job("b")], "shown": ["a", "b"], "last_share": 0.5}
    return Curves(kind="curves", **{**given, "within": 0.03, "least": 0.8, **more})


def curve_rows(of: dict[str, list[list[float]]], study: Curves) -> pl.DataFrame:
    rows = []
    for seed in range(2):
        trial = study.trials(JOB, seed)[0]
        found = {name: list(enumerate(seeds[seed], start=1)) for name, seeds in of.items()}
        rows += study.rows(TrialResult(trial, {}, {}, preemptions={"a": 2}, curves=found))
    return pl.DataFrame(rows)


def test_a_model_converges_that_ends_high_and_still() -> None:
    """a ends at (0.90 + 0.94) / 2 and its mean moves by 0.02 over the last 2 of 4 epochs; b by 0.2."""
    study = curves()
    found = {
        "a": [[0.1, 0.5, 0.9, 0.9], [0.2, 0.6, 0.9, 0.94]],
        "b": [[0.1, 0.5, 0.7, 0.9], [0.1, 0.5, 0.7, 0.9]],
    }
    outcome = study.outcome(curve_rows(found, study))
    assert verdicts(study.outcome(repeated(curve_rows(found, study), 20))) == "yyyn"
    assert outcome.parts[0].numbers == "92.0 %"
    assert outcome.parts[1].text == "a moves by at most 3 points over the last 2 epochs"
    assert outcome.parts[1].numbers == "by 2.00"
    line = outcome.figure.lines[0]
    assert (line.label, line.x) == ("a", (1.0, 2.0, 3.0, 4.0))
    assert [value.mean for value in line.values] == pytest.approx([0.15, 0.55, 0.9, 0.92])
    assert [row[-1] for row in outcome.rows] == [Estimate(2.0), Estimate(0.0)]


def test_a_model_that_is_still_but_low_does_not_converge() -> None:
    """Nothing is learned: 0.1 all along."""
    study = curves(shown=["a"])
    assert verdicts(study.outcome(repeated(curve_rows({"a": [[0.1] * 4] * 2}, study)))) == "ny"


def test_only_the_jobs_shown_are_watched() -> None:
    """The others are there to preempt them."""
    (trial,) = curves(shown=["a"]).trials(JOB, 3)
    assert trial.watched == {"a"}
    assert [one["id"] for one in trial.jobs] == ["a", "b"]


def test_a_job_that_moves_is_compared_with_its_training_alone() -> None:
    """By hand: 0.90 and 0.94 among others, 0.91 and 0.94 alone: -0.5 points in the mean, within 2 but not within 0.3.

    The study is void where a job was not moved, or moved alone.
    """

    def outcome(margin: float, moves: int = 3, alone: int = 1) -> Outcome:
        study = curves(shown=["a"], undisturbed="fifo", margin=margin)
        rows = []
        for seed, (among, unmoved) in enumerate([(0.9, 0.91), (0.94, 0.94)]):
            for trial, last, count in zip(study.trials(JOB, seed), (among, unmoved), (moves, alone), strict=True):
                curve = {"a": [(1, 0.1), (2, 0.9), (3, last), (4, last)]}
                rows += study.rows(TrialResult(trial, {}, {}, deployments={"a": count}, curves=curve))
        return study.outcome(repeated(pl.DataFrame(rows), 20))

    assert verdicts(outcome(0.02)) == "yyyy"
    assert outcome(0.02).parts[2].numbers.startswith("-0.500 [")
    assert verdicts(outcome(0.003)) == "yyny"
    assert verdicts(outcome(0.02, moves=1)) == "yyyn"
    assert verdicts(outcome(0.02, alone=2)) == "yyyn"


def test_placements_are_counted_one_after_another() -> None:
    """Job 0 stands at x twice, then at x and y, then at x again: three; job 1 never moves."""
    rows = [
        (0, "x", 1, 0),
        (0, "x", 1, 5),
        (0, "x", 1, 9),
        (0, "y", 2, 9),
        (0, "x", 1, 12),
        (1, "y", 1, 0),
        (1, "y", 1, 7),
    ]
    runs = pl.DataFrame(rows, ["job", "server", "workers", "start"], orient="row")
    assert deployments(runs) == {0: 3, 1: 1}


# --- Fig. 5


def preemptions(**more: Any) -> Preemptions:
    given: dict[str, Any] = {"policies": ["aonline", "srtf"], "low": "aonline", "jobs": [2, 4], "span_s": 5.0}
    given |= {"factory": "skedge.live.examples:digits", "models": [{"model": "lenet"}, {"model": "resnet"}]}
    given |= {"gang_share": 1.0}
    return Preemptions(**{"kind": "preemptions", "epochs": (2, 5), "chunks": (1, 3), **given, **more})


def counted(counts: dict[str, list[list[int]]], study: Preemptions) -> pl.DataFrame:
    """Preemptions by policy, seed, number of jobs."""
    rows = []
    for seed in range(2):
        for trial in study.trials(JOB, seed):
            policy, jobs = str(trial.place["policy"]), int(trial.place["jobs"])
            metrics = {"preemptions": counts[policy][seed][study.jobs.index(jobs)], "jct_mean_s": 1.0}
            rows += study.rows(TrialResult(trial, metrics, metrics, displaced_workers=9, displaced_jobs=1))
    return pl.DataFrame(rows)


def test_growth_is_the_mean_slope_over_the_seeds_and_low_is_below_the_mean_of_the_others() -> None:
    """aonline 0 -> 2 and 1 -> 1: slopes 1 and 0; mean over all 1. srtf 3 -> 5 both: slope 1, mean 4."""
    study = preemptions()
    outcome = study.outcome(counted({"aonline": [[0, 2], [1, 1]], "srtf": [[3, 5], [3, 5]]}, study))
    assert [part.numbers for part in outcome.parts] == [
        "0.500 for each job more", "1.00 for each job more", "1.00 against 4.00",
    ]  # fmt: skip
    more = repeated(counted({"aonline": [[0, 2], [1, 1]], "srtf": [[3, 5], [3, 5]]}, study), 6)
    assert verdicts(study.outcome(more)) == "yyy"
    assert [(line.label, [v.mean for v in line.values]) for line in outcome.figure.lines] == [
        ("aonline", [0.5, 1.5]),
        ("srtf", [3.0, 5.0]),
    ]
    assert [row[:2] for row in outcome.rows] == [("aonline", 2), ("aonline", 4), ("srtf", 2), ("srtf", 4)]


def test_relatively_low_is_not_the_lowest() -> None:
    """aonline has 3, srtf 1 and tiresias 9: the others have 5 in the mean. With 3 of tiresias they have 2."""
    study = preemptions(policies=["aonline", "srtf", "tiresias"])
    low, lower = [[2, 4]] * 2, [[0, 2]] * 2
    for highest, verdict in (([[8, 10]] * 2, "y"), ([[2, 4]] * 2, "n")):
        rows = counted({"aonline": low, "srtf": lower, "tiresias": highest}, study)
        assert verdicts(study.outcome(repeated(rows, 5)))[-1] == verdict


def test_preemptions_may_be_counted_in_workers() -> None:
    """9 workers in every run, whatever the number of preemptions: nothing grows, nobody is low."""
    study = preemptions(unit="workers_displaced")
    rows = repeated(counted({"aonline": [[0, 2], [1, 1]], "srtf": [[3, 5], [3, 5]]}, study), 6)
    assert verdicts(study.outcome(rows)) == "nnn"
    assert study.outcome(rows).figure.y == "workers displaced"


def test_a_gang_has_a_share_of_its_chunks_or_the_gpus_of_the_trace() -> None:
    """Half of 4 chunks are 2, a tenth of them is 1 worker; of the trace's jobs 93 % have one GPU."""
    wide = {"chunks": (4, 4), "jobs": [2, 200]}
    for share, workers in ((1.0, {4}), (0.5, {2}), (0.1, {1})):
        assert {one["workers"] for one in preemptions(gang_share=share, **wide).trials(JOB, 0)[-1].jobs} == workers
    of_trace = [one["workers"] for one in preemptions(gang_share=None, **wide).trials(JOB, 0)[-1].jobs]
    assert of_trace.count(1) > 170
    assert 1 < max(of_trace) <= 4
    types = [one["worker_type"] for one in preemptions(worker_types=["gpu", "cpu"], **wide).trials(JOB, 0)[-1].jobs]
    assert 60 < types.count("gpu") < 140


def test_a_policy_that_does_not_grow_or_is_not_the_lowest_is_told() -> None:
    """aonline falls, and preempts more than srtf, which does not preempt at all: nothing of the claim holds."""
    study = preemptions()
    rows = repeated(counted({"aonline": [[4, 2], [4, 2]], "srtf": [[0, 0], [0, 0]]}, study))
    assert verdicts(study.outcome(rows)) == "nnn"


def test_the_smaller_workloads_of_a_seed_are_parts_of_its_largest() -> None:
    """All policies get the same jobs, within the span; another seed gives others."""
    study = preemptions()
    trials = study.trials(JOB, 0)
    assert [(t.policy, len(t.jobs)) for t in trials] == [("aonline", 2), ("srtf", 2), ("aonline", 4), ("srtf", 4)]
    assert trials[2].jobs[:2] == trials[0].jobs == trials[1].jobs
    assert study.trials(JOB, 0) == trials != study.trials(JOB, 1)
    for one in trials[3].jobs:
        assert 0 <= one["arrival_s"] <= 5
        assert 1 <= one["chunks"] == one["workers"] == one["train"]["args"]["chunks"] <= 3
        assert 2 <= one["epochs"] <= 5


# --- Fig. 4 and 6


def test_a_rate_is_that_of_the_same_seed_and_jobs() -> None:
    """aonline 1 of 2, 3 of 4, 2 of 8, 1 of 2, a sum of two metrics each; below srtf, which is 1 throughout."""
    given = preemptions().model_dump(exclude={"unit"})
    given |= {"kind": "rates", "base_policy": "srtf", "metrics": ["x", "y"], "what": "sum"}
    study = Rates(**given)
    values = {"aonline": [[1, 3], [2, 1]], "srtf": [[2, 4], [8, 2]]}
    rows = []
    for seed in range(2):
        for trial in study.trials(JOB, seed):
            value = values[str(trial.place["policy"])][seed][study.jobs.index(int(trial.place["jobs"]))]
            rows += study.rows(TrialResult(trial, {"x": value - 0.5, "y": 0.5}, {"x": value, "y": value}))
    outcome = study.outcome(pl.DataFrame(rows))
    more = repeated(pl.DataFrame(rows))
    assert verdicts(study.outcome(more)) == "y"
    assert [part.text for part in outcome.parts] == ["aonline is below srtf over all J"]
    assert outcome.parts[0].numbers == "0.500 against 1.00"
    assert [(line.label, [v.mean for v in line.values]) for line in outcome.figure.lines] == [
        ("aonline", [0.375, 0.625]),
        ("srtf", [1.0, 1.0]),
    ]
    assert verdicts(study.model_copy(update={"low": "srtf"}).outcome(more)) == "n"


# --- accuracy


def disturbed() -> Disturbed:
    return Disturbed(kind="disturbed", policy="aonline", jobs=[job("a")], others=[job("x")], margin=0.02)


def measured(pairs: list[tuple[float, float]], lost: int = 3) -> pl.DataFrame:
    """(undisturbed, preempted) accuracy of job a, by seed."""
    study, rows = disturbed(), []
    for seed, pair in enumerate(pairs):
        for trial, accuracy in zip(study.trials(JOB, seed), pair, strict=True):
            displaced_chunks = {"a": lost} if trial.place["how"] == "preempted" else {}
            rows += study.rows(TrialResult(trial, {}, {}, preemptions=displaced_chunks, accuracy={"a": accuracy}))
    return pl.DataFrame(rows)


def test_the_difference_of_accuracies_is_paired_by_seed() -> None:
    """Differences 2, -2, 1, -1, 0.5 points: mean 0.1; within 2 points of 0, t is 1.9 / sqrt(2.55 / 5) = 2.66."""
    differences = (0.02, -0.02, 0.01, -0.01, 0.005)
    pairs = [(0.9 + i / 100, 0.9 + i / 100 + d) for i, d in enumerate(differences)]
    outcome = disturbed().outcome(measured(pairs))
    assert verdicts(outcome) == "?y", "p = 2 x 0.028 with t for 4 degrees"
    assert verdicts(disturbed().outcome(repeated(measured(pairs)))) == "yy"
    assert outcome.parts[0].numbers.startswith("0.100 [")
    mean, seeds = outcome.figure.lines
    assert [value.mean for value in mean.values] == pytest.approx([0.1])
    assert [value.mean for value in seeds.values] == pytest.approx([100 * d for d in differences])
    assert [y for y, _ in outcome.figure.guides] == [-2.0, 2.0]


@pytest.mark.parametrize("difference", [0.03, -0.03])
def test_a_mean_difference_beyond_the_margin_does_not_hold(difference: float) -> None:
    """Better counts as different too."""
    assert verdicts(disturbed().outcome(measured([(0.9, 0.9 + difference)] * 5))) == "ny"


def test_a_study_in_which_nothing_was_preempted_is_void() -> None:
    """Equal accuracies say nothing then."""
    assert verdicts(disturbed().outcome(measured([(0.9, 0.9)] * 5, lost=0))) == "yn"


def test_the_undisturbed_job_is_alone_and_the_same() -> None:
    """The pair differs by the others that arrive."""
    alone, among = disturbed().trials(JOB, 1)
    assert [one["id"] for one in alone.jobs] == ["a"]
    assert among.jobs[0] == alone.jobs[0]
    assert [one["id"] for one in among.jobs] == ["a", "x"]


# --- what is drawn

NAMESPACE = "{http://www.w3.org/2000/svg}"


def figure(**more: Any) -> Figure:
    lines = (
        Line("a", (4.0, 6.0), (Estimate(1.0, 0.5, 1.5), Estimate(3.0, 2.0, 4.0))),
        Line("<b> & co", (4.0,), (Estimate(2.0),), joined=False),
    )
    return Figure("Title <1>", "jobs", "preemptions", lines, **more)


def test_the_figure_has_every_line_with_its_points_and_intervals() -> None:
    """a: two points, two intervals and what joins them; b: one point. It is well-formed whatever labels hold."""
    root = ET.fromstring(svg(figure()))  # noqa: S314 - our own drawing
    groups = {g.get("data-line"): g for g in root.iter(f"{NAMESPACE}g")}
    shapes = {
        name: (len(g.findall(f"{NAMESPACE}circle")), len(g.findall(f"{NAMESPACE}polyline")))
        for name, g in groups.items()
    }
    assert shapes == {"a": (2, 3), "<b> & co": (1, 0)}
    texts = [text.text for text in root.iter(f"{NAMESPACE}text")]
    assert {"a", "<b> & co", "jobs", "preemptions", "4", "6"} <= set(texts)
    heights = [float(circle.get("cy", "")) for circle in groups["a"].findall(f"{NAMESPACE}circle")]
    assert heights[0] > heights[1], "more is higher"


def test_names_and_limits_take_the_place_of_numbers() -> None:
    """0 and 1 on the x axis are called by their names; what is above the limit is drawn at it."""
    line = Line("a", (0.0, 1.0), (Estimate(0.9, 0.6, 1.2), Estimate(0.5, 0.4, 0.6)))
    root = ET.fromstring(svg(Figure("t", "model", "y", (line,), ("lenet", "alexnet"), limits=(0.0, 1.0))))  # noqa: S314
    assert {"lenet", "alexnet"} <= {text.text for text in root.iter(f"{NAMESPACE}text")}
    top = min(
        float(place.split(",")[1]) for p in root.iter(f"{NAMESPACE}polyline") for place in p.get("points", "").split()
    )
    assert top == 20.0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((0.0, 10.0, 6), [0, 2, 4, 6, 8, 10]),
        ((0.0, 1.0, 6), [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ((-2.3, 2.3, 7), [-2, -1, 0, 1, 2]),
    ],
)
def test_ticks_are_round(given: tuple[float, float, int], expected: list[float]) -> None:
    """Even steps of 1, 2, 2.5 or 5 times a power of ten."""
    assert ticks(*given) == pytest.approx(expected)


def test_ticks_of_whole_numbers_are_whole() -> None:
    """20 epochs in ten ticks: steps of 5, not 2.5."""
    assert ticks(1, 20, 9, integers=True) == [5, 10, 15, 20]
    assert ticks(0, 2, 9, integers=True) == [0, 1, 2]


@pytest.fixture
def found() -> StudyResults:
    study: Study = find_study("jsac22", "accuracy").model_copy(update={"settings": disturbed(), "title": "A <title>"})
    rows = measured([(0.9, 0.905), (0.92, 0.92)] * 3)
    return StudyResults(study, 6, rows, study.settings.outcome(rows), {"a-preempted-seed1": ("M8: too <late>",)}, 12)


def test_the_page_says_claim_verdict_numbers_and_how_to_repeat(found: StudyResults) -> None:
    """One file without scripts or addresses; nothing that it says can become markup."""
    made = page(found)
    assert "<script" not in made
    assert "A &lt;title&gt;" in made
    assert "a-preempted-seed1: M8: too &lt;late&gt;" in made
    assert "<strong>holds, with 6 seeds: of 2 parts 2 hold</strong>" in made
    assert "every rule holds in 11 of 12 runs" in made
    assert "skedge reproduce jsac22 accuracy --seeds 6" in made
    assert svg(found.outcome.figure) in made
    assert "http" not in made.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_results_are_kept_for_machines_as_json_and_parquet(found: StudyResults, tmp_path: Path) -> None:
    """Every row that was measured, and the verdict with its numbers."""
    write_findings(found, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == WRITTEN
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")
    points = pl.read_csv(tmp_path / "figure.csv")
    assert points.columns == ["line", "x", "mean", "low", "high"]
    assert len(points) == sum(len(line.x) for line in found.outcome.figure.lines)
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["verdict"] == "holds"
    assert pl.read_parquet(tmp_path / "results.parquet").equals(found.rows)
    assert kept["table"][0]["difference, points"]["mean"] == pytest.approx(0.25)
    assert kept["setting"]["settings"]["kind"] == "disturbed"


def test_a_claim_that_holds_easily_says_so(found: StudyResults, tmp_path: Path) -> None:
    """An easier metric is another verdict; what makes it near-vacuous is on the page and in the results."""
    easier = found.study.model_copy(update={"easier": "the paper counts <workers>"})
    outcome = replace(found.outcome, caveats=("no policy completes more than 12% of the jobs by T in the mean",))
    easy = replace(found, study=easier, outcome=outcome)
    assert (found.verdict, easy.verdict) == (Verdict.HOLDS, Verdict.EASIER)
    write_findings(easy, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "easier than the paper&#x27;s metric: the paper counts &lt;workers&gt;" in page
    assert "near-vacuous: no policy completes more than 12%" in page
    results = json.loads((tmp_path / "results.json").read_text())
    assert (results["verdict"], len(results["caveats"])) == ("holds by an easier metric", 1)


def test_seeds_double_until_the_cap() -> None:
    study = find_study("pdors", "fig8")
    assert study.looks == (8, 16, 32, 64)
    assert study.model_copy(update={"seeds": 5, "cap": 12}).looks == (5, 10, 12)
    assert find_study("pdors", "fig5").looks == (1,)


def test_the_papers_of_the_files_are_known() -> None:
    """A trial label is a folder's name."""
    for study in studies_of("jsac22"):
        if not study.servers:
            continue  # it trains nothing
        labels: list[Trial] = study.settings.trials(study.job, 0)
        assert all(set(trial.label) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for trial in labels)


@pytest.mark.parametrize(
    ("lead", "words"),
    [
        (0.3, "about 47 seeds would decide it, if what they measure stays as it is"),
        (1e-4, "more than 100,000 seeds would decide it, if what they measure stays as it is"),
        (3.0, ""),
    ],
)
def test_an_open_claim_says_how_many_seeds_would_decide_it(found: StudyResults, lead: float, words: str) -> None:
    """By hand: t = 1.2 with 15 degrees of freedom, p = 0.249, a standard score of 1.15; 16 (1.96 / 1.15)^2 = 46.2."""
    noise = np.random.default_rng(3).standard_normal(16)
    values = tuple(lead + (noise - noise.mean()) / noise.std(ddof=1))
    open_results = replace(found, outcome=replace(found.outcome, parts=(Part("it leads", values, ""),)))
    assert open_results.power == words
    too_few = replace(found, outcome=replace(found.outcome, parts=(Part("it leads", values[:3], ""),)))
    assert too_few.power == ""
