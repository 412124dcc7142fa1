"""The leaderboard: result files as one page that needs no network and no script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from math import fsum

from skedge.core.errors import InputError

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
    found = [_standing(one, group) for one in policies]
    ran = [one for one in found if any(mean is not None for mean in one.by_scenario.values())]
    return sorted(ran, key=lambda one: (one.mean is None, -(one.mean or 0), one.policy.policy))


def _standing(policy: PolicyResult, group: str) -> Standing:
    scores: dict[str, list[float | None]] = {}
    for one in policy.scores:
        if one.group == group:
            scores.setdefault(one.scenario, []).append(one.score)
    every = [score for of in scores.values() for score in of]
    return Standing(policy, _mean(every), {name: _mean(of) for name, of in scores.items()})


def _mean(scores: Sequence[float | None]) -> float | None:
    """The mean; None if one of the scores is."""
    known = [score for score in scores if score is not None]
    return fsum(known) / len(known) if known and len(known) == len(scores) else None


def leaderboard(results: Sequence[Result]) -> str:
    """The page of results of one size and number of seeds; the same results give the same bytes.

    Raises
    ------
    InputError
        If the results are of several sizes or numbers of seeds, or of one seed although bounds are proved for more, or
        a version of a policy is in them twice.
    """
    settings = {(one.size, one.seeds) for one in results}
    if len(settings) != 1:
        listed = ", ".join(f"{size} with seeds {seeds}" for size, seeds in sorted(settings))
        raise InputError(f"the results are of several settings ({listed}); a leaderboard has one")
    policies = [policy for one in results for policy in one.policies]
    names = [(one.policy, one.package, one.version) for one in policies]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise InputError(f"policy {twice[0]!r} of {twice[1]} {twice[2]} is in the results twice; name one of them")
    ((size, seeds),) = settings
    if seeds < min(2, SEEDS[size]):
        raise InputError(f"the results are of one seed, which ranks by chance; give skedge bench --seeds {SEEDS[size]}")
    return _page(policies, size, seeds)


def _page(policies: Sequence[PolicyResult], size: str, seeds: int) -> str:
    style = files("skedge.report").joinpath("report.css").read_text("utf-8").strip()
    title = f"skedge bench: suite {VERSION}, size {size}"
    alone = " Of one seed: others may rank otherwise." if seeds == 1 else ""
    about = (
        f"Seeds: {seeds}. A score is the share of a proved bound, which no schedule beats, that was reached: 1 "
        f"is optimal.{alone} Every record was verified again when this page was made."
    )
    sections = "".join(_section(GROUPS[group], standings(policies, group)) for group in GROUPS)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
        f"<body><h1>{title}</h1><main><p>{about}</p>{sections}</main></body></html>\n"
    )


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
    one = ranked[i]
    better = sum(other.mean is not None and one.mean is not None and other.mean > one.mean for other in ranked)
    yield f"<td class=number>{'–' if one.mean is None else better + 1}</td>"
    yield f"<th>{escape(one.policy.policy)}</th><td>{escape(f'{one.policy.package} {one.policy.version}')}</td>"
    for mean, places in ((one.mean, digits), *((mean, _DIGITS[0]) for mean in one.by_scenario.values())):
        yield f"<td class=number>{'–' if mean is None else f'{mean:.{places}f}'}</td>"


_DIGITS = range(3, 17)
"""Decimals of a mean: as few of these as part the ranks."""


def _digits(ranked: Sequence[Standing]) -> int:
    """Decimals by which different means of a group look different."""
    means = {one.mean for one in ranked if one.mean is not None}
    return next((n for n in _DIGITS if len({f"{mean:.{n}f}" for mean in means}) == len(means)), _DIGITS[-1])
