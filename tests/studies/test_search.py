"""The search for a joint reading, on made-up claims."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from skedge.studies.judge import Verdict
from skedge.studies.reading import ChoiceValue, OpenChoice, Reading, Selection
from skedge.studies.search import SearchResult, Verdicts, search

HOLDS, FAILS = Verdict.HOLDS, Verdict.FAILS


def reading_of(**values: list[str]) -> Reading:
    """A reading with these choices, of which the first value is the plain one."""
    choices = [
        OpenChoice(
            name=name, text="silent", at="Sec. I", open="all", why="the first", plain=names[0], joint=names[0],
            values={value: ChoiceValue(text=value) for value in names},
        )
        for name, names in values.items()
    ]  # fmt: skip
    return Reading(paper="made-up", base="s1", choices=choices)


def judge_of(claims: dict[str, list[Callable[[Selection], bool]]]) -> Callable[[Selection], Verdicts]:
    """Judges claims that are functions of the selection; counts its calls."""

    def judge(selection: Selection) -> Verdicts:
        calls.append(tuple(selection.values()))
        return {figure: [HOLDS if part(selection) else FAILS for part in parts] for figure, parts in claims.items()}

    calls: list[tuple[str, ...]] = []
    judge.calls = calls  # type: ignore[attr-defined]
    return judge


THREE = reading_of(a=["0", "1"], b=["0", "1", "2"], c=["0", "1"])


def test_a_reading_that_changes_three_choices_is_found() -> None:
    """Each choice wins a part of its own; the best has all three, and no selection is tried twice."""
    judge = judge_of({"f": [lambda s: s["a"] == "1", lambda s: s["b"] == "2"], "g": [lambda s: s["c"] == "1"]})
    result = search(THREE, judge, 100)
    assert dict(result.best.changes) == {"a": "1", "b": "2", "c": "1"}
    assert result.best.holds == {"f", "g"}
    calls = judge.calls  # type: ignore[attr-defined]
    assert len(calls) == len(set(calls)) == len(result.attempts)
    assert result.attempts[0].changes == ()


def test_two_choices_that_only_help_together_are_found() -> None:
    judge = judge_of({"f": [lambda s: s["a"] == s["c"] == "1"]})
    assert dict(search(THREE, judge, 100).best.changes) == {"a": "1", "c": "1"}


def test_of_equal_readings_the_one_nearest_to_the_plain_one_is_taken() -> None:
    judge = judge_of({"f": [lambda _: True]})
    assert search(THREE, judge, 100).best.changes == ()


def test_claims_rank_after_parts() -> None:
    """Equal parts: the reading under which a whole claim holds is better."""
    judge = judge_of(
        {
            "f": [lambda s: s["b"] != "1", lambda s: s["b"] == "2"],
            "g": [lambda s: s["b"] == "1", lambda s: s["b"] == "0"],
        }
    )
    assert dict(search(THREE, judge, 100).best.changes) == {"b": "2"}


@pytest.mark.parametrize("budget", [1, 3, 7])
def test_no_more_are_tried_than_the_budget_allows(budget: int) -> None:
    result = search(THREE, judge_of({"f": [lambda s: s["a"] == "1"]}), budget)
    assert len(result.attempts) == budget


def test_what_holds_never_and_never_together_is_told() -> None:
    """Figures f and g hold under different values of one choice; h under none."""
    judge = judge_of(
        {"f": [lambda s: s["b"] == "1"], "g": [lambda s: s["b"] == "2"], "h": [lambda _: False], "i": [lambda _: True]}
    )
    result = search(THREE, judge, 100)
    assert result.never == ["h"]
    assert result.never_together == [("f", "g")]
    assert result.decided_by("b") == {"1": ({"f"}, frozenset()), "2": ({"g"}, frozenset())}
    assert result.decided_by("a") == {"1": (frozenset(), frozenset())}


def test_what_needs_many_changes_is_found_before_all_pairs_are_tried() -> None:
    """Eight choices, each of which wins a part: 28 pairs, and a budget below them."""
    wide = reading_of(**{name: ["0", "1"] for name in "abcdefgh"})
    judge = judge_of({"f": [lambda s, name=name: s[name] == "1" for name in "abcdefgh"]})  # type: ignore[misc]
    assert len(search(wide, judge, 24).best.changes) == 8


def test_a_change_that_harms_later_is_taken_back() -> None:
    """`a` alone wins a part, but beside `b` and `c` it loses two."""
    judge = judge_of(
        {
            "f": [
                lambda s: s["a"] == "1" or s["b"] == "2",
                lambda s: s["b"] == "2" and s["a"] == "0",
                lambda s: s["b"] == "2" and s["c"] == "1",
                lambda s: s["b"] == "2" and s["c"] == "1" and s["a"] == "0",
            ]
        }
    )
    assert dict(search(THREE, judge, 100).best.changes) == {"b": "2", "c": "1"}


def test_choices_of_different_figures_are_no_pair() -> None:
    two = reading_of(a=["0", "1"], b=["0", "1"])
    choices = [choice.model_copy(update={"figures": [f"fig{choice.name}"]}) for choice in two.choices]
    apart = two.model_copy(update={"choices": choices})
    result = search(apart, judge_of({"f": [lambda _: False]}), 100)
    assert {attempt.changes for attempt in result.attempts} == {(), (("a", "1"),), (("b", "1"),)}


def test_every_pair_is_tried_where_the_budget_allows() -> None:
    result = search(THREE, judge_of({"f": [lambda _: False]}), 100)
    pairs = {attempt.changes for attempt in result.attempts if len(attempt.changes) == 2}
    singles = [("a", "1"), ("b", "1"), ("b", "2"), ("c", "1")]
    assert pairs == {pair for pair in itertools.combinations(singles, 2) if pair[0][0] != pair[1][0]}


def test_nothing_more_is_tried_once_every_claim_holds() -> None:
    """After the climb that found it: 4 changes alone, and from `a = 1` the other ones."""
    result = search(THREE, judge_of({"f": [lambda s: s["a"] == "1"]}), 100)
    assert dict(result.best.changes) == {"a": "1"}
    assert max(len(attempt.changes) for attempt in result.attempts) == 2
    assert all(("a", "1") in attempt.changes for attempt in result.attempts if len(attempt.changes) == 2)


def test_changes_that_win_different_parts_are_paired_before_those_that_change_nothing() -> None:
    """`a` and `b` each win a part and lose two, unless both are changed; the other six change nothing."""
    wide = reading_of(**{name: ["0", "1"] for name in "cdefghab"})

    def parts(selection: Selection) -> list[bool]:
        a, b = selection["a"] == "1", selection["b"] == "1"
        return [a, b, a == b, a == b]

    judge = judge_of({"f": [lambda s, i=i: parts(s)[i] for i in range(4)]})  # type: ignore[misc]
    result = search(wide, judge, 10)
    assert result.attempts[-1].changes == (("a", "1"), ("b", "1"))
    assert result.best.holds == {"f"}


def test_a_choice_that_only_adds_parts_is_no_gain() -> None:
    """With `b = 1` there are three parts more, of which two hold."""

    def judge(selection: Selection) -> Verdicts:
        more = [HOLDS, HOLDS, FAILS] if selection["b"] == "1" else []
        return {"f": [HOLDS, FAILS, *more]}

    assert search(THREE, judge, 100).best.changes == ()


@pytest.mark.parametrize("ended_after", range(1, 8))
def test_a_search_that_was_ended_goes_on_where_it_was(ended_after: int) -> None:
    """What an earlier search judged is not judged again, and the result is that of a search in one go."""
    claims = {"f": [lambda s: s["a"] == "1", lambda s: s["b"] == "2"], "g": [lambda s: s["c"] == s["a"]]}
    judge, kept = judge_of(claims), list[SearchResult]()
    in_one_go = search(THREE, judge, 8, keep=kept.append)
    assert [len(result.attempts) for result in kept] == list(range(1, 9))
    earlier_verdicts = {attempt.changes: attempt.verdicts for attempt in kept[ended_after - 1].attempts}
    judge_again = judge_of(claims)
    assert search(THREE, judge_again, 8, earlier_verdicts) == in_one_go
    assert judge_again.calls == judge.calls[ended_after:]  # type: ignore[attr-defined]
