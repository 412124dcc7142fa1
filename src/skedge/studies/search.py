"""The search for a joint reading: the selection under which the fewest parts of a paper's claims do not hold.

From the plain reading one choice is changed at a time, to each other value that the text allows. Then the search
climbs: from the best reading so far it changes one choice at a time, also back to its plain value, until nothing holds
more. Then, unless all parts of all claims hold, two choices are changed at a time from the plain reading, those first
that won most parts, and it climbs from each that is better than all before. Each selection is tried once, on seeds that
no claim is judged on, and as many as the budget allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

from .judge import Verdict
from .reading import Reading, Selection

Verdicts = Mapping[str, Sequence[Verdict]]
"""The verdict on each part of the claim, by figure."""

Change = tuple[str, str]
"""A choice, and its value."""


@dataclass(frozen=True)
class TriedReading:
    """A selection that was tried.

    Attributes
    ----------
    changes
        In which choices it differs from the plain reading, in the order of the text.
    verdicts
        By figure.
    """

    changes: tuple[Change, ...]
    verdicts: Verdicts

    @cached_property
    def parts(self) -> frozenset[tuple[str, int]]:
        """The parts that hold: the figure and the part's index."""
        return frozenset(
            (figure, index)
            for figure, verdicts in self.verdicts.items()
            for index, verdict in enumerate(verdicts)
            if verdict is Verdict.HOLDS
        )

    @property
    def n_parts(self) -> int:
        """The number of parts that hold, over all figures."""
        return len(self.parts)

    @property
    def n_missing(self) -> int:
        """The number of parts that do not hold, or are open; a choice may change the number of all parts."""
        return sum(map(len, self.verdicts.values())) - self.n_parts

    @property
    def holds(self) -> frozenset[str]:
        """The figures whose claim holds: all of its parts do."""
        return frozenset(
            figure
            for figure, verdicts in self.verdicts.items()
            if all(verdict is Verdict.HOLDS for verdict in verdicts)
        )

    @property
    def rank(self) -> tuple[int, int, int]:
        """Larger is better: fewer parts that do not hold, then more claims that do, then fewer changes."""
        return -self.n_missing, len(self.holds), -len(self.changes)


@dataclass(frozen=True)
class SearchResult:
    """All attempts of a search, in order; the first is the plain reading."""

    attempts: tuple[TriedReading, ...]

    @property
    def best(self) -> TriedReading:
        """The attempt of the joint reading: of equal ones the first."""
        return max(self.attempts, key=lambda attempt: attempt.rank)

    @property
    def never(self) -> list[str]:
        """Figures whose claim held in no attempt."""
        return [
            figure
            for figure in self.attempts[0].verdicts
            if not any(figure in attempt.holds for attempt in self.attempts)
        ]

    @property
    def never_together(self) -> list[tuple[str, str]]:
        """Pairs of figures whose claims held, each in some attempt, but in none both."""
        figures = [figure for figure in self.attempts[0].verdicts if figure not in self.never]
        return [
            pair
            for pair in combinations(figures, 2)
            if not any(attempt.holds.issuperset(pair) for attempt in self.attempts)
        ]

    def decided_by(self, choice: str) -> dict[str, tuple[frozenset[str], frozenset[str]]]:
        """By value of a choice: the figures whose claims hold with this change alone and not in the plain reading.

        And those for which it is the other way round.
        """
        plain = self.attempts[0].holds
        single = {attempt.changes[0]: attempt.holds for attempt in self.attempts if len(attempt.changes) == 1}
        return {value: (holds - plain, plain - holds) for (name, value), holds in single.items() if name == choice}


def search(
    reading: Reading,
    judge: Callable[[Selection], Verdicts],
    budget: int,
    earlier_verdicts: Mapping[tuple[Change, ...], Verdicts] | None = None,
    keep: Callable[[SearchResult], None] = lambda _result: None,
) -> SearchResult:
    """Search for the joint reading.

    Parameters
    ----------
    reading
        The choices, and the values that the text allows.
    judge
        The verdicts under a selection.
    budget
        Most selections to try, at least 1.
    earlier_verdicts
        Those of an earlier search, by the changes: these are not judged again.
    keep
        Called after each attempt with all that were made.
    """
    earlier_verdicts = earlier_verdicts or {}
    attempts = dict[tuple[Change, ...], TriedReading]()

    def attempt(changes: Iterable[Change]) -> None:
        ordered = _in_order(reading, dict(changes))
        if ordered not in attempts and len(attempts) < budget:
            verdicts = earlier_verdicts.get(ordered) or judge(reading.selection("plain") | dict(ordered))
            attempts[ordered] = TriedReading(ordered, verdicts)
            keep(SearchResult(tuple(attempts.values())))

    def best() -> TriedReading:
        return SearchResult(tuple(attempts.values())).best

    def climb() -> None:
        start = None
        while start != best():
            start = best()
            for choice in reading.choices:
                for value in choice.values:
                    # from the best of this moment: what is won on the way is kept
                    attempt((*best().changes, (choice.name, value)))

    attempt(())
    singles = [(c.name, value) for c in reading.choices for value in c.values if value != c.plain]
    for change in singles:
        attempt((change,))
    climb()
    if best().holds == best().verdicts.keys():
        return SearchResult(tuple(attempts.values()))
    # the promising ones first, as the budget may end among the pairs: both may keep what one of them wins
    won = {change: attempts[(change,)].parts - attempts[()].parts for change in singles if (change,) in attempts}
    pairs = [pair for pair in combinations(won, 2) if _meet(reading, pair[0][0], pair[1][0])]
    for pair in sorted(
        pairs, key=lambda pair: (len(won[pair[0]] | won[pair[1]]), all(map(won.get, pair))), reverse=True
    ):
        before = best()
        attempt(pair)
        if best() != before:
            climb()
    return SearchResult(tuple(attempts.values()))


def _meet(reading: Reading, first: str, second: str) -> bool:
    """Whether two choices are not the same, and concern a common figure: else what each decides just adds up."""
    figures = {choice.name: set(choice.figures) for choice in reading.choices}
    return first != second and (not figures[first] or not figures[second] or bool(figures[first] & figures[second]))


def _in_order(reading: Reading, values: Selection) -> tuple[Change, ...]:
    """The changes in the order of the text, without plain values."""
    return tuple(
        (choice.name, values[choice.name])
        for choice in reading.choices
        if values.get(choice.name, choice.plain) != choice.plain
    )
