"""Brings the chunks of an upload to their server: real bytes, piece by piece, spread over the link's delay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from skedge.core.errors import TrainingError
from skedge.live import host
from skedge.live.coordinator.report import Report
from skedge.live.worker.checkpoint import is_full
from skedge.live.worker.job_process import Printed
from skedge.live.worker.labels import warning

from .inputs import Uploaded
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

    The upload restarts if the agent is lost, as long as it is under way; while the agent's disk is full, it waits. If
    its chunks do not come from a server, or that server cannot provide them, they are made.
    """

    def __init__(self, world: RayWorld, upload: Transport) -> None:
        self.job = world.scenario.jobs.ids[upload.job]
        super().__init__(name=f"upload {self.job}", daemon=True)
        self.upload, self.uploads, self.tell, self.log = upload, world.uploads, world.inbox.tell, world.job_log
        self.controller, self.attempts, self.failures = world.inbox.resumed, 0, 0
        self.waits, self.output = False, world.facts.job_output
        self.labels = world.facts.labels.setdefault(upload.job, {})
        self.program, self.job_code = world.program(upload.job), world.engine.job_code
        self.agent = world.engine.agents[upload.server]
        from_server = upload.source is not None and not world.out.get(upload.source)
        self.source = world.engine.agents[upload.source] if from_server and upload.source is not None else None

    def run(self) -> None:
        """Send the upload, and report its arrival or why it has failed."""
        try:
            while self._wanted() and not self._copy():
                host.sleep(_PATIENCE_S)
            if self.log is not None and (sentence := warning(self.program, self.labels)):
                self.labels.clear()  # told once
                self.log(self.job, sentence)
        except TrainingError as error:
            if self.log is not None and (traceback := getattr(error, "traceback", "")):
                self.log(self.job, traceback)
            self.tell(Report("failed", self.upload.job, reason=str(error)))
        except Exception as error:  # any error: a thread that ends silently would leave the job hanging
            reason = f"its upload has ended: {type(error).__name__}: {error}"
            self.tell(Report("failed", self.upload.job, reason=reason))
        else:
            self.tell(Uploaded(self.upload.number))

    def _hear(self, printed: Printed) -> None:
        """Keep what the process that makes the data has printed."""
        if printed:
            self.output(self.job, *printed)

    def _wanted(self) -> bool:
        return self.upload.number in self.uploads.pending

    def _copy(self) -> bool:
        """Send the bytes piece by piece; False if the agent was lost, or the upload is no longer wanted.

        True means that the chunks have arrived whole and were checked.

        Raises
        ------
        TrainingError
            If the job's data cannot be made, or the server's disk refuses them.
        """
        self.attempts += 1
        start, delay_s = host.monotonic(), self.upload.delay_s
        contents = self._from_source() or self.job_code.contents(
            self.program, self.upload.chunks, self._hear, self.labels
        )
        total, n_sent = sum(len(content) for _, content in contents), 0
        for chunk, content in contents:
            for offset in range(0, len(content), _PIECE):
                piece = content[offset : offset + _PIECE]
                last = offset + len(piece) == len(content)
                if not self._stored(chunk, offset, piece, last=last):
                    return False
                n_sent += len(piece)
                host.sleep(max(start + delay_s * n_sent / total - host.monotonic(), 0.0))
        host.sleep(max(start + delay_s - host.monotonic(), 0.0))
        return True

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

    def _stored(self, chunk: int, offset: int, piece: bytes, *, last: bool) -> bool:
        """Have a piece stored, waiting while the agent's disk is full; False if this attempt is to end.

        Raises
        ------
        TrainingError
            If the disk refuses several attempts in a row for another reason.
        """
        while self._wanted():
            try:
                self._store(chunk, offset, piece, last=last)
            except host.FailedError as error:
                if not is_full(error.cause):
                    return self._refused(chunk, error)
                self._say(f"chunk {chunk} waits for its server, whose disk is full")
                host.sleep(_FULL_S)
            except host.CallError:
                return False
            else:
                self.waits = False
                self.failures = 0 if last else self.failures
                return True
        return False

    def _store(self, chunk: int, offset: int, piece: bytes, *, last: bool) -> None:
        # a writer that was late, or a controller that was frozen, may still write: each attempt has a file of its own
        attempt = (self.controller, self.upload.number, self.attempts)
        stored = host.call(self.agent, "store", self.job, chunk, offset, piece, last=last, attempt=attempt)
        host.answer(stored, _PIECE_S)

    def _refused(self, chunk: int, error: host.FailedError) -> bool:
        """Note an attempt that the server's disk has refused: False."""
        self.failures += 1
        if self.failures > _FAILURES:
            raise TrainingError(f"chunk {chunk} cannot be brought to its server: {error.cause}") from error
        self._say(f"chunk {chunk} is brought to its server again: {error}")
        return False

    def _say(self, line: str) -> None:
        """Write a line to the job's log, once until a piece is stored."""
        if self.log is not None and not self.waits:
            self.log(self.job, line)
        self.waits = True
