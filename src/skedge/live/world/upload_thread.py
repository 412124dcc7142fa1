"""Brings the chunks of an upload to their server: real bytes, piece by piece, spread over the link's delay."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.coordinator.report import Report
from skedge.live.worker.checkpoint import is_full
from skedge.live.worker.labels import warning

from .inputs import Uploaded
from .sending import (
    EndUpload,
    FailUpload,
    KeepPace,
    MakeData,
    Sending,
    SendingInstruction,
    SendPiece,
    WaitForServer,
)
from .uploads import Transport

if TYPE_CHECKING:
    from .ray_world import RayWorld

_PIECE = 2**18
"""Size of a piece, the part of a chunk sent at once [bytes]."""

_PIECE_S = 20.0
"""Time after which a piece that has not arrived is sent again [s]."""

_PATIENCE_S, _FULL_S = 0.5, 1.0
"""Pause before an upload to a lost server, and to one whose disk is full, is tried again [s]."""

_FAILURES = 5
"""Attempts in a row that a server's disk may refuse for another reason than that it is full."""


class UploadThread(host.Thread):
    """Sends an upload to its agent, and reports when it has arrived whole.

    It carries out what :class:`.sending.Sending` decides. If its chunks do not come from a server, or that server
    cannot provide them, they are made.
    """

    def __init__(self, world: RayWorld, upload: Transport) -> None:
        self.job = world.scenario.jobs.ids[upload.job]
        super().__init__(name=f"upload {self.job}", daemon=True)
        self.upload, self.uploads, self.tell = upload, world.uploads, world.inbox.tell
        self.sending, self.controller = Sending(_PIECE, _FAILURES), world.inbox.resumed
        self.contents, self.attempt_began = dict[int, bytes](), 0.0
        self.log, self.hear = partial(world.facts.job_log, self.job), partial(world.facts.note_printed, self.job)
        self.labels = world.facts.labels.setdefault(upload.job, {})
        self.program, self.job_code = world.program(upload.job), world.engine.job_code
        self.agent = world.engine.agents[upload.server]
        from_server = upload.source is not None and not world.out.get(upload.source)
        self.source = world.engine.agents[upload.source] if from_server and upload.source is not None else None

    def run(self) -> None:
        """Send the upload, and report its arrival or why it has failed."""
        try:
            instruction = self._waited()
            while not isinstance(instruction, EndUpload):
                instruction = self._perform(instruction)
            if sentence := warning(self.program, self.labels):
                self.labels.clear()  # told once
                self.log(sentence)
        except TrainingError as error:
            if traceback := getattr(error, "traceback", ""):
                self.log(traceback)
            self.tell(Report("failed", self.upload.job, reason=str(error)))
        except Exception as error:  # any error: a thread that ends silently would leave the job hanging
            reason = f"its upload has ended: {type(error).__name__}: {error}"
            self.tell(Report("failed", self.upload.job, reason=reason))
        else:
            self.tell(Uploaded(self.upload.number))

    def _waited(self) -> SendingInstruction:
        return self.sending.waited(is_wanted=self.upload.number in self.uploads.pending)

    def _perform(self, instruction: SendingInstruction) -> SendingInstruction:
        """Carry out an instruction, and return the next one.

        Raises
        ------
        TrainingError
            If the job's data cannot be made, or the server's disk refuses them.
        """
        match instruction:
            case MakeData():
                return self._make_data()
            case SendPiece():
                return self._send(instruction)
            case KeepPace(share):
                host.sleep(max(self.attempt_began + self.upload.delay_s * share - host.monotonic(), 0.0))
            case WaitForServer(line, disk_is_full):
                if line:
                    self.log(line)
                host.sleep(_FULL_S if disk_is_full else _PATIENCE_S)
            case FailUpload(reason):
                raise TrainingError(reason)
            case EndUpload():
                return instruction
        return self._waited()

    def _make_data(self) -> SendingInstruction:
        self.attempt_began, self.contents = host.monotonic(), {}  # those of the last attempt take memory
        contents = self._from_source() or self.job_code.contents(
            self.program, self.upload.chunks, self.hear, self.labels
        )
        self.contents = dict(contents)
        return self.sending.made((chunk, len(content)) for chunk, content in contents)

    def _from_source(self) -> list[tuple[int, bytes]]:
        """The chunks as stored on the server that they come from; empty if it lacks one or does not answer."""
        if self.source is None:
            return []
        try:
            contents: list[Any] = host.answer(
                host.call(self.source, "contents", self.job, self.upload.chunks), _PIECE_S
            )
            return list(zip(self.upload.chunks, contents, strict=True))
        except host.CallError:
            return []

    def _send(self, piece: SendPiece) -> SendingInstruction:
        """Have a piece stored, and report what has come of it."""
        content = self.contents[piece.chunk][piece.start : piece.stop]
        # a writer that was late, or a controller that was frozen, may still write: each attempt has a file of its own
        attempt = (self.controller, self.upload.number, self.sending.attempts)
        try:
            stored = host.call(
                self.agent, "store", self.job, piece.chunk, piece.start, content, last=piece.last, attempt=attempt
            )
            host.answer(stored, _PIECE_S)
        except host.FailedError as error:
            return self.sending.full() if is_full(error.cause) else self.sending.refused(error.cause)
        except host.CallError:
            return self.sending.lost()
        return self.sending.stored()
