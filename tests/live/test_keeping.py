"""What a supervisor decides: case by case, and in every order in which its processes can end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from simulated.exploration import BrokenError, Explored, copied, explore
from skedge.live.service.keeping import (
    WRONG,
    EndService,
    Keeping,
    KeepingInstruction,
    LogDeath,
    PauseService,
    Role,
    StartProcess,
    TakeOver,
)

HOST, CONTROLLER, STANDBY = Role
TRIES = 2
KILLED, RAISED = -9, 1


def begun(*, embedded: bool = True) -> Keeping:
    """After the host and a controller were started."""
    keeping = Keeping(embedded=embedded, tries=TRIES)
    start = [StartProcess(HOST)] if embedded else []
    assert keeping.begin() == [*start, StartProcess(STANDBY), TakeOver()]
    return keeping


@pytest.mark.parametrize("embedded", [True, False])
def test_a_service_begins_with_a_controller_and_a_host_if_it_needs_that(embedded: bool) -> None:
    assert begun(embedded=embedded).up == ({HOST, CONTROLLER} if embedded else {CONTROLLER})


def test_a_standby_is_started_once_the_controller_serves_and_replaced() -> None:
    keeping = begun()
    assert keeping.look(serves=False) == []
    assert keeping.look(serves=True) == [StartProcess(STANDBY)]
    assert keeping.look(serves=True) == []
    assert keeping.ended(STANDBY, KILLED, serves=True) == []
    assert keeping.look(serves=True) == [StartProcess(STANDBY)]


def test_a_standby_takes_over_at_once() -> None:
    keeping = begun()
    keeping.look(serves=True)
    assert keeping.ended(CONTROLLER, KILLED, serves=True) == [LogDeath(CONTROLLER)]
    assert keeping.look(serves=False) == [TakeOver()]


def test_what_ends_before_a_controller_serves_is_started_after_a_pause() -> None:
    keeping = begun()
    assert keeping.ended(HOST, 7, serves=False) == [LogDeath(HOST), PauseService(7), StartProcess(HOST)]
    assert keeping.ended(CONTROLLER, 1, serves=False) == [LogDeath(CONTROLLER), PauseService(1)]
    assert keeping.look(serves=False) == [StartProcess(STANDBY), TakeOver()]
    assert keeping.ended(HOST, 7, serves=True) == [LogDeath(HOST), StartProcess(HOST)]


@pytest.mark.parametrize("role", [HOST, CONTROLLER])
def test_it_gives_up_after_deaths_in_a_row(role: Role) -> None:
    """With the status of the last; those before a controller served do not count."""
    keeping = begun()
    for serves in (False, True, False):
        assert EndService(3) not in keeping.ended(role, 3, serves=serves)
        keeping.look(serves=False)
    assert keeping.ended(role, 3, serves=False) == [LogDeath(role), EndService(3)]


def test_a_controller_that_has_served_and_takes_its_address_away_as_it_ends_got_far() -> None:
    keeping = begun()
    for _ in range(2 * TRIES):
        keeping.look(serves=True)
        assert keeping.ended(CONTROLLER, RAISED, serves=False) == [LogDeath(CONTROLLER)]
        assert keeping.look(serves=False) == [TakeOver()]
    assert keeping.ended(CONTROLLER, RAISED, serves=False) == [LogDeath(CONTROLLER), PauseService(RAISED)]


@pytest.mark.parametrize("status", [0, WRONG])
def test_a_controller_that_must_not_be_restarted_ends_the_service(status: int) -> None:
    assert begun().ended(CONTROLLER, status, serves=True) == [EndService(status)]


# --- all interleavings


@dataclass
class Child:
    """A process: its exit status once it has ended; of a controller whether it serves, and was seen to."""

    status: int | None = None
    is_controller: bool = False
    serves: bool = False
    has_served: bool = False


class Service:
    """A supervisor that does one thing at a time, beside processes that end in between.

    Attributes
    ----------
    replaced
        Processes that were replaced although they run.
    reported
        For each role whether the controller served, of its last deaths.
    last_status
        That of the last death.
    status
        Of the service, once it has ended.
    """

    def __init__(self, keeping: Keeping) -> None:
        self.keeping = keeping
        self.processes: dict[Role, Child] = {}
        self.replaced: list[Child] = []
        self.instructions = deque(keeping.begin())
        self.polled = 0
        self.reported: dict[Role, tuple[bool, ...]] = {HOST: (), CONTROLLER: ()}
        self.last_status: int | None = None
        self.is_final = False
        self.status: int | None = None

    def act(self) -> None:
        """Carry out the next instruction; if there is none, poll the next process, or look."""
        if self.instructions:
            self._perform(self.instructions.popleft())
        elif self.polled < len(Role):
            self._poll(list(Role)[self.polled])
            self.polled += 1
        else:
            self.instructions += self.keeping.look(serves=self.serves)
            self.processes[CONTROLLER].has_served |= self.serves
            self.polled = 0

    def _poll(self, role: Role) -> None:
        if role not in self.keeping.up or (status := self.processes[role].status) is None:
            return
        self.instructions += self.keeping.ended(role, status, serves=self.serves)
        if role is not STANDBY:
            self.last_status = status
            self.is_final = role is CONTROLLER and status in (0, WRONG)
            has_served = role is CONTROLLER and self.processes[CONTROLLER].has_served
            self.reported[role] = (*self.reported[role], self.serves or has_served)[-TRIES:]

    def _perform(self, instruction: KeepingInstruction) -> None:
        match instruction:
            case StartProcess(role):
                self._place(role, Child())
            case TakeOver():
                child = self.processes.pop(STANDBY)
                child.is_controller = True
                self._place(CONTROLLER, child)
            case EndService(status):
                self.status = status

    def _place(self, role: Role, child: Child) -> None:
        if role in self.processes and self.processes[role].status is None:
            self.replaced.append(self.processes[role])
        self.processes[role] = child

    @property
    def serves(self) -> bool:
        return CONTROLLER in self.processes and self.processes[CONTROLLER].serves

    def running(self) -> list[Role]:
        return [role for role, child in self.processes.items() if child.status is None]

    @property
    def is_ending(self) -> bool:
        return self.status is not None or any(isinstance(instruction, EndService) for instruction in self.instructions)


Event = tuple[str, Role | None, int]


def events(service: Service) -> Iterator[Event]:
    """What can happen next: the supervisor acts, a process ends, a controller begins to serve."""
    if service.status is not None:
        return
    yield "act", None, 0
    for role in service.running():
        yield "ends", role, KILLED
    if CONTROLLER in service.running():
        yield from (("ends", CONTROLLER, status) for status in (0, RAISED, WRONG))
        if not service.serves:
            yield "serves", CONTROLLER, 0


def step(service: Service, event: Event) -> None:
    name, role, status = event
    if role is None:
        service.act()
    elif name == "serves":
        service.processes[role].serves = True
    else:
        service.processes[role].status = status
        if status == RAISED:  # it has removed its address, by which one sees that it serves
            service.processes[role].serves = False


def check(service: Service) -> None:
    children = [*service.processes.values(), *service.replaced]
    assert sum(child.is_controller and child.status is None for child in children) <= 1, "two controllers"
    assert not service.replaced, "a process that runs is replaced"
    running = service.running()
    if STANDBY in running and CONTROLLER in running:
        assert service.serves, "a standby beside a controller that does not serve"
    has_to_end = service.is_final or (False,) * TRIES in service.reported.values()
    assert service.is_ending == has_to_end, "it ends too early or too late"
    assert service.status in (None, service.last_status)
    settled = copied(service)
    settle(settled)
    if settled.status is None:
        assert set(settled.running()) == set(Role), "not all processes are up again"


def settle(service: Service) -> None:
    """Let the supervisor look a few times while nothing ends and controllers serve."""
    for _ in range(24):
        if service.status is None:
            service.act()
            if CONTROLLER in service.running():
                service.processes[CONTROLLER].serves = True


def search(kind: type[Keeping]) -> Explored:
    return explore(Service(kind(embedded=True, tries=TRIES)), events, step, check, depth=200)


def test_processes_are_kept_up_in_all_interleavings() -> None:
    explored = search(Keeping)
    assert explored.all_reachable
    assert explored.states > 1000


class Hasty(Keeping):
    """Does not wait until the controller serves."""

    def look(self, *, serves: bool) -> list[KeepingInstruction]:
        return list(super().look(serves=True))


class Confused(Keeping):
    """Takes the end of the standby for that of the controller."""

    def ended(self, role: Role, status: int, *, serves: bool) -> list[KeepingInstruction]:
        if role is STANDBY:
            self.up.discard(CONTROLLER)
        return list(super().ended(role, status, serves=serves))


class Unforgiving(Keeping):
    """Counts all deaths, not those in a row."""

    def ended(self, role: Role, status: int, *, serves: bool) -> list[KeepingInstruction]:
        deaths = dict(self.deaths)
        instructions = super().ended(role, status, serves=serves)
        if serves:
            self.deaths = deaths
        return list(instructions)


class Stubborn(Keeping):
    """Tries once more."""

    def ended(self, role: Role, status: int, *, serves: bool) -> list[KeepingInstruction]:
        self.tries = TRIES + 1
        return list(super().ended(role, status, serves=serves))


class Hostless(Keeping):
    """Does not start the host again."""

    def ended(self, role: Role, status: int, *, serves: bool) -> list[KeepingInstruction]:
        instructions = super().ended(role, status, serves=serves)
        return [instruction for instruction in instructions if instruction != StartProcess(HOST)]


@pytest.mark.parametrize(
    ("kind", "message", "least"),
    [
        # three instructions, three polls, the look, the start of the standby
        (Hasty, "a standby beside a controller that does not serve", 3 + 3 + 1 + 1),
        # the same with a controller that serves, and again with a standby that dies, but for a start and a take-over
        (Confused, "two controllers", 8 + 1 + 1 + 3 + 1 + 2),
        (Unforgiving, "it ends too early or too late", None),
        (Stubborn, "it ends too early or too late", None),
        (Hostless, "not all processes are up again", None),
    ],
)
def test_a_mistake_is_found(kind: type[Keeping], message: str, least: int | None) -> None:
    with pytest.raises(BrokenError, match=message) as error:
        search(kind)
    assert least in (None, len(error.value.sequence))
