"""The leaderboard: result files as one page that needs no network and no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import fsum

from skedge.core.errors import InputError
from skedge.report.shell import plain_page

from .check import PolicyResult, Result
from .suite import SEEDS, VERSION

GROUPS = {
    "lanes": "Lanes: total JCT of jobs in chunks (JSAC'22)",
    "gangs": "Gangs: total JCT of jobs that train as one (She et al.)",
    "sites": "Sites: total cost of latency and bandwidth (Okita)",
    "resources": "Resources: total utility by the horizon (PD-ORS)",
}
"""The groups of scenarios in the order of the page, with their headings."""


@dataclass(frozen=True)
class Standing:
    """A policy's place in a group: the mean of its scores, and the mean of each scenario's over the seeds.

    A mean is None if a score that belongs to it is.
    """

    policy: PolicyResult
    mean: float | None
    by_scenario: dict[str, float | None]


def standings(policies: Sequence[PolicyResult], group: str) -> list[Standing]:
    """The policies that ran on a group, the best first; those without a mean last, by name."""
    entries = [_standing(entry, group) for entry in policies]
    # A policy that cannot run on any scenario of the group is no competitor in it: it is left out, not ranked last.
    ranked = [entry for entry in entries if any(mean is not None for mean in entry.by_scenario.values())]
    return sorted(ranked, key=lambda entry: (entry.mean is None, -(entry.mean or 0), entry.policy.policy))


def _standing(policy: PolicyResult, group: str) -> Standing:
    scores: dict[str, list[float | None]] = {}
    for task_score in policy.scores:
        if task_score.group == group:
            scores.setdefault(task_score.scenario, []).append(task_score.score)
    all_scores = [score for group_scores in scores.values() for score in group_scores]
    return Standing(policy, _mean(all_scores), {name: _mean(group_scores) for name, group_scores in scores.items()})


def _mean(scores: Sequence[float | None]) -> float | None:
    """Mean of the scores; None if one of them is None."""
    numbers = [score for score in scores if score is not None]
    # fsum() is exact, so that the order of the results does not show. A mean of fewer scenarios would rank by easier
    # ones.
    return fsum(numbers) / len(numbers) if numbers and len(numbers) == len(scores) else None


def leaderboard(results: Sequence[Result]) -> str:
    """The page of results of one size and number of seeds; the same results give the same bytes.

    Raises
    ------
    InputError
        If the results are of several sizes or numbers of seeds, or of one seed although bounds are proved for more, or
        a version of a policy is in them twice.
    """
    settings = {(entry.size, entry.seeds) for entry in results}
    if len(settings) != 1:
        settings_text = ", ".join(f"{size} with seeds {seeds}" for size, seeds in sorted(settings))
        raise InputError(f"the results are of several settings ({settings_text}); a leaderboard has one")
    policies = [policy for entry in results for policy in entry.policies]
    # A new version of a package is another policy: it may stand beside the old one.
    names = [(entry.policy, entry.package, entry.version) for entry in policies]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate:
        raise InputError(
            f"policy {duplicate[0]!r} of {duplicate[1]} {duplicate[2]} is in the results twice; name one of them"
        )
    ((size, seeds),) = settings
    # Where only one seed has a bound (the large size) one is enough, and the page says so.
    if seeds < min(2, SEEDS[size]):
        raise InputError(f"the results are of one seed, which ranks by chance; give skedge bench --seeds {SEEDS[size]}")
    return _page(policies, size, seeds)


def _page(policies: Sequence[PolicyResult], size: str, seeds: int) -> str:
    alone = " Of one seed: others may rank otherwise." if seeds == 1 else ""
    about = (
        f"Seeds: {seeds}. A score is the share of a proved bound, which no schedule beats, that was reached: 1 "
        f"is optimal.{alone} Every record was verified again when this page was made."
    )
    sections = "".join(_section(GROUPS[group], standings(policies, group)) for group in GROUPS)
    return plain_page(f"skedge bench: suite {VERSION}, size {size}", f"<p>{about}</p>{sections}")


def _section(title: str, ranked: Sequence[Standing]) -> str:
    if not ranked:
        return f"<section><h2>{escape(title)}</h2><p>No policy ran.</p></section>"
    heads = "".join(f"<th>{escape(head)}</th>" for head in ("rank", "policy", "from", "mean", *ranked[0].by_scenario))
    digits = _digits(ranked)
    rows = "".join(f"<tr>{''.join(_cells(rank, ranked, digits))}</tr>" for rank in range(len(ranked)))
    return (
        f'<section><h2>{escape(title)}</h2><div class="scroll"><table class="plain">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></section>"
    )


def _cells(i: int, ranked: Sequence[Standing], digits: int) -> Iterator[str]:
    row = ranked[i]
    # Equal means share a rank, and the next rank is as much higher.
    n_better = sum(rival.mean is not None and row.mean is not None and rival.mean > row.mean for rival in ranked)
    yield f"<td class=number>{'–' if row.mean is None else n_better + 1}</td>"
    yield f"<th>{escape(row.policy.policy)}</th><td>{escape(f'{row.policy.package} {row.policy.version}')}</td>"
    for mean, places in ((row.mean, digits), *((mean, _DIGITS[0]) for mean in row.by_scenario.values())):
        yield f"<td class=number>{'–' if mean is None else f'{mean:.{places}f}'}</td>"


_DIGITS = range(3, 17)
"""Decimals of a mean: as few of these as part the ranks."""


def _digits(ranked: Sequence[Standing]) -> int:
    """Decimals by which different means of a group look different."""
    means = {row.mean for row in ranked if row.mean is not None}
    # Means that differ have different ranks, which a reader must see, be it in the last digit.
    return next((n for n in _DIGITS if len({f"{mean:.{n}f}" for mean in means}) == len(means)), _DIGITS[-1])
