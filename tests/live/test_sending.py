"""What an upload decides: case by case, and for every sequence of outcomes of its calls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulated.exploration import BrokenError, Explored, copied, explore
from skedge.live.world.sending import (
    EndUpload,
    FailUpload,
    KeepPace,
    MakeData,
    Sending,
    SendingInstruction,
    SendPiece,
    WaitForServer,
)

PIECE, FAILURES = 2, 1
BROKEN = OSError("it is broken")

Sizes = tuple[tuple[int, int], ...]

PIECES: dict[Sizes, list[SendPiece]] = {
    ((0, 3), (1, 1)): [SendPiece(0, 0, 2, False), SendPiece(0, 2, 3, True), SendPiece(1, 0, 1, True)],
    ((0, 2), (1, 2)): [SendPiece(0, 0, 2, True), SendPiece(1, 0, 2, True)],
}
"""The pieces of data of these sizes, which differ when they are made anew."""

LONG, SHORT = PIECES


def begun() -> Sending:
    """An upload whose first piece is to be sent."""
    sending = Sending(PIECE, FAILURES)
    assert sending.waited(is_wanted=True) == MakeData()
    assert sending.made(LONG) == KeepPace(0.0)
    assert sending.waited(is_wanted=True) == PIECES[LONG][0]
    return sending


def test_pieces_are_sent_in_order_at_the_pace_of_the_link() -> None:
    """Of four bytes two, one and one."""
    sending = begun()
    for number, share in enumerate((0.5, 0.75, 1.0)):
        assert sending.stored() == KeepPace(share)
        assert sending.waited(is_wanted=True) == [*PIECES[LONG], EndUpload()][number + 1]


def test_an_upload_without_bytes_takes_its_delay() -> None:
    sending = Sending(PIECE, FAILURES)
    sending.waited(is_wanted=True)
    assert sending.made([]) == KeepPace(1.0)
    assert sending.waited(is_wanted=True) == EndUpload()


def test_a_disk_that_is_full_is_waited_for() -> None:
    """One line is said until a piece is stored."""
    sending = begun()
    line = "chunk 0 waits for its server, whose disk is full"
    for text in (line, ""):
        assert sending.full() == WaitForServer(text, is_full=True)
        assert sending.waited(is_wanted=True) == PIECES[LONG][0]
    sending.stored()
    sending.waited(is_wanted=True)
    assert sending.full() == WaitForServer(line, is_full=True)
    assert sending.attempts == 1


def test_after_a_lost_server_the_data_are_made_and_sent_anew() -> None:
    sending = begun()
    sending.stored()
    sending.waited(is_wanted=True)
    assert sending.lost() == WaitForServer("", is_full=False)
    assert sending.waited(is_wanted=True) == MakeData()
    assert sending.made(SHORT) == KeepPace(0.0)
    assert sending.waited(is_wanted=True) == PIECES[SHORT][0]
    assert sending.attempts == 2


def test_a_server_that_refuses_attempts_in_a_row_fails_the_upload() -> None:
    sending = begun()
    line = "chunk 0 is brought to its server again: OSError: it is broken"
    assert sending.refused(BROKEN) == WaitForServer(line, is_full=False)
    sending.waited(is_wanted=True)
    sending.made(LONG)
    assert sending.refused(BROKEN) == FailUpload("chunk 0 cannot be brought to its server: it is broken")


def test_a_chunk_that_is_stored_whole_ends_the_row() -> None:
    sending = begun()
    sending.refused(BROKEN)
    sending.waited(is_wanted=True)
    sending.made(SHORT)
    sending.stored()
    assert sending.refused(BROKEN) == WaitForServer(
        "chunk 1 is brought to its server again: OSError: it is broken", is_full=False
    )


def test_an_upload_that_is_not_wanted_ends() -> None:
    """Before its first attempt, and before a piece."""
    assert Sending(PIECE, FAILURES).waited(is_wanted=False) == EndUpload()
    sending = begun()
    sending.full()
    assert sending.waited(is_wanted=False) == WaitForServer("", is_full=False)
    assert sending.waited(is_wanted=False) == EndUpload()


# --- all outcomes


class Upload:
    """An upload beside a server that stores, refuses or loses each piece.

    Attributes
    ----------
    wanted, knows
        Whether the chunks are still wanted, and whether the upload was told that they are not.
    sizes, pieces
        The data of the last attempt, and what the server has of it.
    attempt
        Number of the attempt whose pieces these are: the server has a file for each.
    n_ended
        Attempts that have ended.
    outcomes
        The last refusals (False) and chunks stored whole (True).
    """

    def __init__(self, sending: Sending) -> None:
        self.sending = sending
        self.wanted, self.knows = True, False
        self.sizes, self.pieces = LONG, list[SendPiece]()
        self.attempt, self.n_ended = 0, 0
        self.outcomes: tuple[bool, ...] = ()
        self.instruction: SendingInstruction = sending.waited(is_wanted=True)

    def make(self, sizes: Sizes) -> None:
        if self.sending.attempts != self.attempt:
            self.attempt, self.pieces = self.sending.attempts, []
        self.sizes = sizes
        self.instruction = self.sending.made(sizes)

    def wait(self) -> None:
        self.knows = not self.wanted
        self.instruction = self.sending.waited(is_wanted=self.wanted)

    def answer(self, piece: SendPiece, outcome: str) -> None:
        """What has come of a piece; one that is late is stored, and thought lost."""
        if outcome in ("stored", "late"):
            self.pieces.append(piece)
        if outcome == "stored":
            self._note(*[True] * piece.last)
            self.instruction = self.sending.stored()
        elif outcome == "full":
            self.instruction = self.sending.full()
        else:
            self.n_ended += 1
            if outcome == "refused":
                self._note(False)
            self.instruction = self.sending.refused(BROKEN) if outcome == "refused" else self.sending.lost()

    def _note(self, *outcomes: bool) -> None:
        self.outcomes = (*self.outcomes, *outcomes)[-FAILURES - 1 :]


Event = str | Sizes


def events(upload: Upload) -> Iterator[Event]:
    """What can happen next; the upload can become unwanted at any time."""
    match upload.instruction:
        case EndUpload() | FailUpload():
            return
        case MakeData():
            yield from PIECES
        case SendPiece():
            yield from ("stored", "late", "full", "refused", "lost")
        case KeepPace() | WaitForServer():
            yield "waited"
    if upload.wanted:
        yield "unwanted"


def step(upload: Upload, event: Event) -> None:
    if event == "unwanted":
        upload.wanted = False
    elif event == "waited":
        upload.wait()
    elif isinstance(event, tuple):
        upload.make(event)
    else:
        assert isinstance(upload.instruction, SendPiece)
        upload.answer(upload.instruction, event)


def check(upload: Upload) -> None:
    every, instruction = PIECES[upload.sizes], upload.instruction
    assert upload.pieces == every[: len(upload.pieces)], "pieces are missing or not in order"
    if isinstance(instruction, EndUpload):
        assert upload.knows or upload.pieces == every, "it ends before all is stored"
    assert not (upload.knows and isinstance(instruction, SendPiece | MakeData)), "it goes on although it is not wanted"
    has_to_fail = upload.outcomes == (False,) * (FAILURES + 1)
    assert isinstance(instruction, FailUpload) == has_to_fail, "it fails too early or too late"
    assert upload.sending.attempts <= upload.n_ended + 1, "it begins anew without need"
    settled = copied(upload)
    settle(settled)
    assert isinstance(settled.instruction, EndUpload | FailUpload), "it does not end"


def settle(upload: Upload) -> None:
    """Let everything be stored from now on: a pause, the data, and three pieces with a pause before each and after."""
    for _ in range(3 + 2 * len(PIECES[LONG])):
        match next(events(upload), None):
            case None | "unwanted":
                return
            case event:
                step(upload, event)


def search(kind: type[Sending]) -> Explored:
    return explore(Upload(kind(PIECE, FAILURES)), events, step, check, depth=24)


def test_an_upload_arrives_whole_whatever_its_calls_come_to() -> None:
    """Not all states are reached, as a server can be lost without end."""
    explored = search(Sending)
    assert not explored.all_reachable
    assert explored.states > 1000


class Skipping(Sending):
    """Leaves out a piece for which there is no space."""

    def full(self) -> SendingInstruction:
        instruction = super().full()
        self._pieces.popleft()
        return instruction


class Resuming(Sending):
    """Goes on with the piece that was lost, instead of beginning anew."""

    def lost(self) -> SendingInstruction:
        return WaitForServer("", is_full=False)


class Tireless(Sending):
    """Never gives up."""

    def refused(self, cause: BaseException) -> SendingInstruction:
        self.failures = 0
        return super().refused(cause)


class Unforgiving(Sending):
    """Counts all refusals, not those in a row."""

    def stored(self) -> SendingInstruction:
        failures = self.failures
        instruction = super().stored()
        self.failures = failures
        return instruction


class Deaf(Sending):
    """Does not hear that it is no longer wanted."""

    def waited(self, *, is_wanted: bool) -> SendingInstruction:
        return super().waited(is_wanted=True)


class Hurried(Sending):
    """Makes the data anew when the disk is full."""

    def full(self) -> SendingInstruction:
        return self._again("")


class Early(Sending):
    """Ends when all but one piece are stored."""

    def waited(self, *, is_wanted: bool) -> SendingInstruction:
        instruction = super().waited(is_wanted=is_wanted)
        return EndUpload() if isinstance(instruction, SendPiece) and len(self._pieces) == 1 else instruction


class Hanging(Sending):
    """Waits for ever once all is stored."""

    def waited(self, *, is_wanted: bool) -> SendingInstruction:
        instruction = super().waited(is_wanted=is_wanted)
        return KeepPace(1.0) if isinstance(instruction, EndUpload) and is_wanted else instruction


FIRST = (SHORT, "waited")
"""The shortest way to a piece."""


@pytest.mark.parametrize(
    ("kind", "message", "sequence"),
    [
        (Skipping, "pieces are missing", (*FIRST, "full", "waited", "stored")),
        (Resuming, "pieces are missing", (*FIRST, "late", "waited", "stored")),
        (Tireless, "it fails too early or too late", (*FIRST, "refused", "waited", *FIRST, "refused")),
        (Deaf, "it goes on although it is not wanted", (SHORT, "unwanted", "waited")),
        (Hurried, "it begins anew without need", (*FIRST, "full", "waited")),
        (Early, "it ends before all is stored", (*FIRST, "stored", "waited")),
        (Hanging, "it does not end", ()),
    ],
)
def test_a_mistake_is_found_by_a_shortest_sequence(
    kind: type[Sending], message: str, sequence: tuple[Event, ...]
) -> None:
    with pytest.raises(BrokenError, match=message) as error:
        search(kind)
    assert len(error.value.sequence) == len(sequence)
    upload = Upload(kind(PIECE, FAILURES))
    for event in sequence:
        step(upload, event)
    with pytest.raises(AssertionError, match=message):
        check(upload)


def test_refusals_that_are_not_in_a_row_must_not_fail_it() -> None:
    """Refused, the chunk stored whole, refused at the next one."""
    with pytest.raises(BrokenError, match="it fails too early or too late") as error:
        search(Unforgiving)
    outcomes = [event for event in error.value.sequence if event in ("refused", "stored")]
    assert outcomes == ["refused", "stored", "refused"]
