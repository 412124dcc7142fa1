"""The machine of a coordinator's attachment: examples, and all interleavings of three links with late messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from simulated.exploration import BrokenError, explore
from skedge.live.coordinator.attachment import Attachment
from skedge.live.coordinator.messages import FencedError, LastReport, UnattachedError
from skedge.live.coordinator.report import Report

FIRST, SECOND = (1, "first"), (2, "second")


def test_a_controller_attaches_after_those_before_it_alone() -> None:
    attachment = Attachment(5.0, 0.0)
    with pytest.raises(UnattachedError):
        attachment.check(FIRST)
    assert attachment.attach(SECOND, LastReport(), 3.0) == (True, 3.0, 0)
    assert attachment.attach(SECOND, LastReport(), 4.0) is None, "a repeated call"
    for controller in (FIRST, (2, "other")):
        with pytest.raises(FencedError):
            attachment.attach(controller, LastReport(), 5.0)
    assert attachment.attach((3, "third"), LastReport(), 5.0) == (False, 5.0, 0)


def test_an_order_is_taken_once_by_each_controller() -> None:
    attachment = Attachment(5.0, 0.0)
    attachment.attach(FIRST, LastReport(), 0.0)
    assert [attachment.takes(FIRST, number) for number in (1, 1, 2, 1)] == [True, False, True, False]
    attachment.attach(SECOND, LastReport(), 0.0)
    assert attachment.takes(SECOND, 1), "each numbers its own"
    with pytest.raises(FencedError):
        attachment.takes(FIRST, 3)


def test_trainers_pause_after_a_while_and_the_clock_stands_still_until_a_controller_is_heard() -> None:
    attachment = Attachment(5.0, 0.0)
    assert not attachment.pauses(100.0), "nobody has attached yet"
    attachment.attach(FIRST, LastReport(), 100.0)
    assert not attachment.hear(7_000_000, 100.0)
    assert [attachment.pauses(now_s) for now_s in (105.0, 106.0, 107.0)] == [False, True, False]
    assert [attachment.clock(now_s) for now_s in (106.0, 200.0)] == [13_000_000, 13_000_000]
    assert attachment.hear(13_000_000, 200.0), "they continue"
    assert attachment.clock(201.0) == 14_000_000


# -- all interleavings -----------------------------------------------------------------------------------------------


class Size(NamedTuple):
    """Links of controllers to the coordinator, orders of each, reports of the trainers, losses of the coordinator."""

    links: int = 3
    orders: int = 1
    reports: int = 2
    losses: int = 1


Link = tuple[int, str]


@dataclass
class Scene:
    """A coordinator, the links of controllers with one journal, and the requests under way.

    Attributes
    ----------
    size
        Most that happens.
    coordinator
        The machine; a new one once it was lost.
    told
        The reports that it has been told; `n_told` counts those of all coordinators.
    journal
        (number, content, link) of the reports in it.
    links
        Those that have been made: the number of the last order that was answered, None before one is attached, -1
        before it has asked for that; and the last report in the journal by what its controller knows. The last alone
        writes to the journal; those before it may not know of it.
    requests
        (method, link, argument): late or never; orders and news, which are repeated, again and again. The answer may be
        lost.
    carried_out
        (link, number) of orders, since the coordinator is this one.
    """

    size: Size
    coordinator: Attachment = field(default_factory=lambda: Attachment(1e9, 0.0))
    told: set[int] = field(default_factory=set)
    n_told: int = 0
    losses: int = 0
    journal: list[tuple[int, int, int]] = field(default_factory=list)
    links: dict[Link, tuple[int | None, LastReport]] = field(default_factory=dict)
    requests: set[tuple[str, Link, Any]] = field(default_factory=set)
    carried_out: list[tuple[Link, int]] = field(default_factory=list)

    @property
    def last(self) -> LastReport:
        """The last report in the journal."""
        number, _, link = self.journal[-1] if self.journal else (0, 0, 0)
        return LastReport(number, link)


Event = tuple[str, Any]


def events(scene: Scene) -> Iterator[Event]:
    """What may happen next."""
    if len(scene.links) < scene.size.links:
        yield "a link is made", None
    if scene.n_told < scene.size.reports and scene.coordinator.who is not None:
        yield "a report is told", None
    if scene.losses < scene.size.losses and scene.coordinator.who is not None:
        yield "the coordinator is lost", None
    for request in sorted(scene.requests):
        yield from ((what, request) for what in ("arrives", "arrives and is answered"))
    for link, (ordered, last) in scene.links.items():
        request = wanted(scene, link, ordered, last)
        if request is not None and request not in scene.requests:
            yield "is made", request


def step(scene: Scene, event: Event) -> None:
    match event:
        case "a link is made", _:
            scene.links[len(scene.links) + 1, "link"] = -1, scene.last
        case "a report is told", _:
            scene.n_told += 1
            scene.coordinator.tell(Report("trained", scene.n_told), 0.0)
            scene.told.add(scene.n_told)
        case "the coordinator is lost", _:
            scene.coordinator, scene.told, scene.carried_out = Attachment(1e9, 0.0), set(), []
            scene.losses += 1
        case "is made", (method, link, argument):
            scene.requests.add((method, link, argument))
            if method == "attach":
                scene.links[link] = None, argument
        case what, (method, link, argument):
            if method == "attach":
                scene.requests.remove((method, link, argument))
            deliver(scene, method, link, argument, answered=what != "arrives")


def wanted(scene: Scene, link: Link, ordered: int | None, last: LastReport) -> tuple[str, Link, Any] | None:
    """The next request of a link: it attaches once, and repeats orders, and asks for news, until there is an answer."""
    if ordered is None:
        return None
    if ordered < 0:
        return "attach", link, last
    return ("order", link, ordered + 1) if ordered < scene.size.orders else ("news", link, last.number)


def deliver(scene: Scene, method: str, link: Link, argument: Any, *, answered: bool) -> None:
    """A request arrives at the coordinator, and its answer at the controller, or not."""
    coordinator, (_, last) = scene.coordinator, scene.links[link]
    try:
        if method == "attach":
            coordinator.attach(link, argument, 0.0)
            scene.links[link] = 0 if answered else None, last
        elif method == "order":
            if coordinator.takes(link, argument):
                scene.carried_out.append((link, argument))
            if answered and scene.links[link][0] == argument - 1:
                scene.links[link] = argument, last
        else:
            coordinator.journaled(link, argument)
            news = coordinator.news(link, argument, 0.0)
            if (
                answered and argument == last.number and link == max(scene.links)
            ):  # the journal takes entries of the last controller alone
                scene.journal += [
                    (report.number, report.job, link[0]) for report in news if report.number > last.number
                ]
                scene.links[link] = scene.links[link][0], scene.last
    except (FencedError, UnattachedError):
        return


def check(scene: Scene) -> None:
    """Each report is journaled once, without a gap; orders are carried out once, in order, of the latest alone."""
    numbers, contents = ([row[i] for row in scene.journal] for i in (0, 1))
    assert numbers == list(range(1, len(numbers) + 1)), "the journal has a gap"
    assert len(set(contents)) == len(contents), "a report is in the journal twice"
    kept = {report.job for report in scene.coordinator.reports}
    assert scene.told <= kept.union(contents), "a report is in no journal, and the coordinator has dropped it"
    for link in scene.links:
        orders = [number for other, number in scene.carried_out if other == link]
        assert orders == list(range(1, len(orders) + 1)), "an order is carried out twice, or before an earlier one"
    assert scene.carried_out == sorted(scene.carried_out), "an order is carried out after one of a later controller"


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(Size(3, 1, 2), id="three links", marks=pytest.mark.thorough),
        pytest.param(Size(2, 2, 2), id="two orders"),
    ],
)
def test_all_interleavings_with_late_and_lost_messages(size: Size) -> None:
    explored = explore(Scene(size), events, step, check, depth=100)
    assert explored.all_reachable
    assert explored.states > 1_000


def _attach(attachment: Attachment, controller: Link, journaled: LastReport, now_s: float) -> Any:
    """As shipped before: reports up to the number are dropped, whichever coordinator made the one in the journal."""
    attachment._attached.add(journaled.controller)
    return SHIPPED["attach"](attachment, controller, journaled, now_s)


def _takes(attachment: Attachment, controller: Link, number: int) -> bool:
    """As shipped, but whoever asks."""
    attachment.who = attachment.who or controller
    return bool(SHIPPED["takes"](attachment, attachment.who, number))


def _news(attachment: Attachment, controller: Link, after: int, now_s: float) -> Any:
    """As shipped, but what is handed out is dropped."""
    reports = SHIPPED["news"](attachment, controller, after, now_s)
    attachment.reports = []
    return reports


SHIPPED: dict[str, Any] = {name: getattr(Attachment, name) for name in ("attach", "takes", "news")}


@pytest.mark.parametrize(
    ("method", "mutant", "message"),
    [
        ("attach", _attach, "in no journal"),
        ("takes", _takes, "carried out"),
        ("news", _news, "in no journal"),
    ],
    ids=["attach", "takes", "news"],
)
def test_a_mistake_is_found(method: str, mutant: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Attachment, method, mutant)
    with pytest.raises(BrokenError, match=message):
        explore(Scene(Size()), events, step, check, depth=100)
