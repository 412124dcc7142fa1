"""One job's training: the controller's side of synchronous SGD.

One thread per job drives rounds. In a round every worker of the job computes one mini-batch at the current version. The
gradients that have arrived by the deadline go to the parameter server together. A preempted worker leaves between two
rounds: its mini-batch is finished and counted, and its data stay where they are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from skedge.core.errors import TrainingError
from skedge.live.world.inputs import Told

from .apart import EndedError, sent
from .checkpoint import DiskFullError, Life, UnwrittenError
from .maker import Calls
from .ps import NotLoadedError
from .training import Program

_DEADLINE_S, _SLOW_S = 10.0, 300.0
"""Deadlines of a call [s]. A worker that exceeds the first (or three mean rounds, if longer) is left out of the round;
each such round doubles the deadline, up to the second. Loading and saving use the second from the start."""

_PATIENCE_S = 0.5
"""Pause before a round is repeated after a process was lost [s]."""

_NEW, _ENOUGH, _CHANGED = 0.1, 20, 1.2
"""Weight of a round in the mean round time, least rounds between two reports of it, and the factor that is reported."""

_DEATHS = 4
"""Consecutive calls in which a process of the job ends, after which the job's code is blamed."""

_AGAIN_S, _TRIES = 1.0, 5
"""Pause before a checkpoint that could not be written is tried again; how often, where the disk is not full."""

_LOOK_S = 0.2
"""Interval at which a pending call checks whether its server is out of service [s]."""


@dataclass(frozen=True)
class Team:
    """`width` workers that a job holds on one server, for these chunks.

    Attributes
    ----------
    turns
        True if the chunks take turns on a lane; each chunk's worth of training is then reported.
    max_lag
        Most epochs by which a chunk may be ahead of the job's slowest chunk; 0: no limit. With a limit, chunks that
        take turns also report each epoch.
    """

    server: int
    agent: Any
    chunks: tuple[int, ...]
    width: int
    turns: bool = False
    max_lag: int = 0


class Trainer(threading.Thread):
    """Trains one job; all methods may be called from the controller's thread.

    Parameters
    ----------
    pace
        Least time of a round [s], which gives embedded servers the announced speed; 0 on real servers.
    new_ps, release
        Get a process for the parameter server on a server, and give one back.
    maker
        Measures the result.
    log
        Called with each line for the job's log.
    servers
        Names of the servers, for the log.
    controllers
        Returns the number of controllers that the run had before this one.
    """

    def __init__(
        self,
        job: int,
        name: str,
        program: Program,
        tell: Callable[[Told], None],
        new_ps: Callable[[int], Any],
        release: Callable[[int, Any], None],
        maker: Calls,
        pace: float = 0.0,
        checkpoint_s: float = 2.0,
        log: Callable[[str], None] | None = None,
        *,
        servers: Sequence[str],
        controllers: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__(name=f"train {name}", daemon=True)
        self.job, self.job_name, self.program, self.tell, self.pace = job, name, program, tell, pace
        self.new_ps, self.release, self.maker = new_ps, release, maker
        self.checkpoint_s, self.log, self.servers, self.controllers = checkpoint_s, log, servers, controllers
        self.change = threading.Condition()
        self.teams: dict[int, Team] = {}
        self.held: dict[int, Team] = {}
        self.marks: dict[int, tuple[int, int]] = {}
        self.leaving: set[int] = set()
        self.site: int | None = None
        self.joined: list[float] = []
        self.closed = False
        self.ps: Any = None
        self.ps_site: int | None = None
        self.version = 0
        self.loads = 0
        self.progress = [0] * program.chunks
        self.reported: set[int] = set()
        self.state: Any = None
        self.saved_at = 0.0
        self.due = 0.0
        self.late_s = self.behind_s = self.recovery_s = 0.0
        self.round_s = self.told_s = 0.0
        self.rounds = 0
        self.patience_s = min(max(_DEADLINE_S, 3 * pace), _SLOW_S)
        self.first_step: dict[int, float] = {}
        self.out: set[int] = set()
        self.said_at = 0.0
        self.deaths = 0
        self.watched: list[tuple[int, Any]] = []
        self.sent: Any = None
        self.module = ""

    # -- orders, from the controller -----------------------------------------------------------------------------

    def put(self, number: int, team: Team, lag_s: float = 0.0) -> None:
        """Add a team, or replace it; it works from the next round on, and holds its lanes since `lag_s` ago."""
        with self.change:
            self.teams[number] = team
            self.joined.append(time.monotonic() - lag_s)
            self.held.pop(number, None)
            self.marks.pop(number, None)
            self.reported.difference_update(team.chunks)
            self.first_step.pop(number, None)
            self.leaving.discard(number)
            self.change.notify()

    def take(self, number: int) -> None:
        """Let a team leave after its mini-batch; ``stopped`` is reported then."""
        with self.change:
            self.leaving.add(number)
            self.change.notify()

    def serve_from(self, server: int) -> None:
        """Assign the job's parameter server to this server; it does not move if it is there already."""
        with self.change:
            self.site = server
            self.change.notify()

    def lose(self, server: int) -> None:
        """A server is out of service: stop waiting for its answers, and give up a parameter server there."""
        with self.change:
            self.out.add(server)
            if self.site == server:
                self.site = None
            self.change.notify()

    def regain(self, server: int) -> None:
        """Note that a server is back in service."""
        self.out.discard(server)

    def recall(self, told: Told) -> None:
        """Replay a report that this job's trainer made before the controller was lost; only before :meth:`run`."""
        self.progress = list(told.progress) or self.progress
        if told.what == "released":
            self.held.pop(told.team, None)
        if told.what not in ("stopped", "finished", "held"):
            return
        team = self.teams.pop(told.team, None)
        self.leaving.discard(told.team)
        if team is not None and told.what == "finished":
            self.reported.update(team.chunks)
        if team is not None and told.what == "held":
            self.held[told.team] = team

    def rest(self) -> None:
        """Give up the parameter server of a paused job: its slot has been returned."""
        with self.change:
            self.site = None
            self.change.notify()

    def close(self) -> None:
        """End the thread after its round."""
        with self.change:
            self.closed = True
            self.change.notify()

    # -- the rounds ----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train round by round until the job is trained, fails, or is closed."""
        try:
            self.sent = _shared(sent(self.program))
            while (teams := self._next_teams()) is not None:
                if self.site is None:
                    self._give_up_ps()
                elif self._move_ps():
                    self._round(teams)
                    if not self._dismiss_finished():
                        self._keep_checkpoint()
        except TrainingError as error:
            self.tell(Told("failed", self.job, progress=tuple(self.progress), reason=str(error)))
        except Exception as error:  # any error: a thread that ends silently would leave the job hanging
            reason = f"its training has ended: {type(error).__name__}: {error}"
            self.tell(Told("failed", self.job, progress=tuple(self.progress), reason=reason))
        finally:
            if self.ps_site is not None:
                self.release(self.ps_site, self.ps)

    def _next_teams(self) -> dict[int, Team] | None:
        """The teams of the next round; waits until there is something to do. None at the end."""
        with self.change:
            while True:
                self._let_go()
                self._hold_back()
                if self.closed:
                    return None
                if (self.teams and self.site is not None) or (self.ps_site is not None and self.site is None):
                    now = time.monotonic()
                    if self.joined:
                        self._write_off()
                        self.late_s += now - min(self.joined)
                        self.joined.clear()
                    self.due = self.due or now
                    return dict(self.teams)
                self._write_off()
                self.change.wait()

    def _write_off(self) -> None:
        """Drop the accumulated delay: a chunk that joins must not train faster to make up for earlier slow rounds."""
        self.late_s, self.behind_s, self.due = self.late_s + self.behind_s, 0.0, 0.0

    def _let_go(self) -> None:
        for number in sorted(self.leaving):
            self.held.pop(number, None)
            if self.teams.pop(number, None) is not None:
                self.tell(self._fact("stopped", number))
        self.leaving.clear()

    def _hold_back(self) -> None:
        """Hold back teams whose chunks are all ahead, release those no longer ahead, and report the work of turns."""
        for number in [number for number, team in self.held.items() if not self._is_ahead(team)]:
            del self.held[number]
            self.tell(self._fact("released", number))
        for number in [number for number, team in self.teams.items() if self._is_ahead(team)]:
            self.held[number] = self.teams.pop(number)
            self.tell(self._fact("held", number))
        for number, team in self.teams.items():
            if team.turns and self._next_chunks(team) and (mark := self._mark(team)) != self.marks.get(number, mark):
                self.tell(self._fact("trained", number))
            self.marks[number] = self._mark(team)

    def _mark(self, team: Team) -> tuple[int, int]:
        """Chunks' worth of mini-batches that a team has trained, and, if its lag is bounded, its epochs."""
        done = [self.progress[chunk] for chunk in team.chunks]
        return sum(done) // self.program.steps, min(done) // self.program.minibatches if team.max_lag else 0

    def _is_ahead(self, team: Team) -> bool:
        """Whether rule M39 keeps the team's least trained chunk from starting its next epoch."""
        if not team.max_lag or not (left := self._next_chunks(team)):
            return False
        epoch, begun = divmod(self.progress[left[0]], self.program.minibatches)
        return begun == 0 and epoch >= min(self.progress) // self.program.minibatches + team.max_lag

    def _fact(self, what: str, team: int) -> Told:
        late, lost = self.late_s + self.behind_s, self.recovery_s
        self.late_s, self.recovery_s = -self.behind_s, 0.0
        return Told(what, self.job, team, tuple(self.progress), late_s=late, recovery_s=lost, module=self.module)

    def _move_ps(self) -> bool:
        """Move the parameter server to its assigned server; returns whether it is up."""
        if self.ps_site == self.site:
            return True
        site = self.site
        if site is None:
            return False
        self._give_up_ps()
        self.ps, self.ps_site = self.new_ps(site), site
        return self._load()

    def _give_up_ps(self) -> None:
        if self.ps_site is not None:
            self._written()
            self.release(self.ps_site, self.ps)
            self.ps_site = None

    def _load(self) -> bool:
        """Load the job's newest checkpoint into the parameter server and adopt its progress; returns success."""
        self.loads += 1
        life = Life(self.controllers(), self.loads)
        ack, self.state = self.ps.load.options(num_returns=2).remote(self.job_name, self.sent, life)
        began = time.monotonic()
        answer = self._call(ack, self.ps_site)
        if answer is None:
            if time.monotonic() - began > _SLOW_S:
                _end(self.ps)
            self.release(int(self.ps_site or 0), self.ps)
            self.ps_site = None
            return False
        self.module = answer["module"]
        self._go_back(answer["progress"])
        self.version = answer["version"]
        return True

    def _go_back(self, progress: list[int]) -> None:
        """Continue from a checkpoint's progress; mini-batches that are not in it are trained again.

        Raises
        ------
        TrainingError
            If one of them belongs to a chunk that was reported as trained: no worker would train it again.
        """
        for chunk in sorted(self.reported):
            if progress[chunk] < self.program.steps:
                raise TrainingError(
                    f"its trained parameters are lost: the checkpoint that can be read holds {progress[chunk]} of "
                    f"{self.program.steps} mini-batches of chunk {chunk}, which was reported as trained"
                )
        again = max(before - now for before, now in zip(self.progress, progress, strict=True))
        if again > 0:
            self._line(f"goes back by {again} mini-batches a chunk: that is what its newest whole checkpoint lacks")
            self.late_s += again * max(self.round_s, self.pace)
        self.progress = progress

    def _round(self, teams: dict[int, Team]) -> None:
        started = time.monotonic()
        asked, whole = {}, True
        for team in teams.values():
            for chunk in self._next_chunks(team):
                call = team.agent.gradient.options(num_returns=2)
                ack, brought = call.remote(self.job_name, self.sent, chunk, self.progress[chunk], self.state)
                asked[ack] = team.server, brought
        deadline = started + self.patience_s
        answers = [(self._call(ack, at, deadline), brought) for ack, (at, brought) in asked.items()]
        ready = [brought for answer, brought in answers if answer is not None]
        for answer, _ in answers:
            self.program.check_same_as(self.module, self.module if answer is None else answer["module"])
        if ready:
            ack, state = self.ps.apply.options(num_returns=2).remote(self.version, *ready)
            answer = self._call(ack, self.ps_site, time.monotonic() + self.patience_s)
            if answer is None:
                whole = self._load() and False
            else:
                self.version, self.progress, self.state = answer["version"], answer["progress"], state
                self.deaths = 0
                for number in teams:
                    self.first_step.setdefault(number, time.monotonic())
                self._watch()
                self._say([answer["loss"] for answer, _ in answers if answer is not None])
        elif asked:
            time.sleep(_PATIENCE_S)
        if not whole or len(ready) < len(asked):
            self.recovery_s += time.monotonic() - started
            self.patience_s = min(2 * self.patience_s, _SLOW_S)
        else:
            self._measure(time.monotonic() - started)
            self.patience_s = min(max(_DEADLINE_S, 3 * self.round_s), _SLOW_S)
        self._keep_pace()

    def _say(self, losses: list[float]) -> None:
        """Write a line to the job's log, at most one per second."""
        now = time.monotonic()
        if now - self.said_at >= 1:
            self.said_at = now
            done, steps = sum(self.progress), self.program.steps * self.program.chunks
            self._line(f"update {self.version}: {done} of {steps} mini-batches, loss {sum(losses) / len(losses):.4g}")

    def _line(self, line: str) -> None:
        if self.log is not None:
            self.log(line)

    def _watch(self) -> None:
        """Keep the parameters after each epoch's worth of mini-batches; they are measured at the end of training.

        Epochs are counted over all chunks together: a per-chunk count would stall while a chunk waits for its lane.
        """
        epoch = sum(self.progress) // (self.program.chunks * self.program.minibatches)
        if self.program.watch and epoch > (self.watched[-1][0] if self.watched else 0):
            self.watched.append((epoch, self.state))

    def _next_chunks(self, team: Team) -> list[int]:
        """The least trained unfinished chunks of a team, one per worker."""
        left = [chunk for chunk in team.chunks if self.progress[chunk] < self.program.steps]
        return sorted(left, key=lambda chunk: (self.progress[chunk], chunk))[: team.width]

    def _call(self, ref: Any, server: int | None, deadline: float | None = None) -> Any:
        """The answer to a call on a server; None if its process is lost or late.

        Raises
        ------
        TrainingError
            If the job's own code fails.
        """
        import ray  # noqa: PLC0415 - Ray is an extra

        deadline = time.monotonic() + _SLOW_S if deadline is None else deadline
        try:
            while not ray.wait([ref], timeout=min(_LOOK_S, max(deadline - time.monotonic(), 0.01)))[0]:
                if server in self.out or time.monotonic() > deadline:
                    return None
            return ray.get(ref)
        except (ray.exceptions.RayActorError, ray.exceptions.ObjectLostError):
            if server is not None and server not in self.out:
                self._line(f"a process on {self.servers[server]} was lost: what it was asked for is done again")
            return None
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, EndedError):
                return self._ended(server)
            if isinstance(error.cause, ray.exceptions.RayError | NotLoadedError):
                return None
            if isinstance(error.cause, TrainingError):
                raise error.cause from None  # Ray's own error contains the whole traceback
            raise TrainingError(f"{type(error.cause).__name__}: {error.cause}") from error

    def _ended(self, server: int | None) -> None:
        """Count a process of this job that ended in a call; it may also have been killed from outside.

        Raises
        ------
        TrainingError
            If that happens repeatedly without an update in between.
        """
        self.deaths += 1
        where = "" if server is None else f" on {self.servers[server]}"
        if self.deaths >= _DEATHS:
            raise TrainingError(
                f"its code ends the process that it runs in, or there is too little memory{where}: "
                f"{self.deaths} calls in a row ended so"
            )
        self._line(f"a process of this job{where} has ended: what it was asked for is done again")

    def _measure(self, round_s: float) -> None:
        """Update the mean round time (at least the announced one), and report it when it has changed by a fifth."""
        round_s = max(round_s, self.pace)
        self.round_s = round_s if self.round_s == 0.0 else (1 - _NEW) * self.round_s + _NEW * round_s
        self.rounds += 1
        told = self.told_s or self.pace
        if self.rounds >= _ENOUGH and (told == 0.0 or not 1 / _CHANGED < self.round_s / told < _CHANGED):
            self.told_s, self.rounds = self.round_s, 0
            self.tell(Told("measured", self.job, round_s=self.round_s))

    def _keep_pace(self) -> None:
        """Wait until the round has lasted as long as announced; rounds after a slow one may make up for it."""
        self.due += self.pace
        wait = self.due - time.monotonic()
        self.behind_s = max(0.0, -wait)
        if wait > 0:
            time.sleep(wait)

    def _dismiss_finished(self) -> bool:
        """Report teams whose chunks are all trained, once a checkpoint holds that; returns whether there was one."""
        with self.change:
            done = [
                number
                for number, team in self.teams.items()
                if all(self.progress[chunk] >= self.program.steps for chunk in team.chunks)
            ]
        if not done:
            return False
        began = time.monotonic()
        saved = self._save()
        took = time.monotonic() - began
        self.late_s, self.due = self.late_s + took, self.due + took
        if not saved:
            return False
        with self.change:
            for number in done:
                team = self.teams.pop(number, None)
                self.reported.update(() if team is None else team.chunks)
                self.leaving.discard(number)
        for number in done:
            self.tell(self._fact("finished", number))
        if all(steps >= self.program.steps for steps in self.progress):
            self._tell_result()
        return True

    def _tell_result(self) -> None:
        """Have the result measured on the controller's node, as the parameter server's slot is for the next job."""
        losses, state = self._call(self.ps.losses.remote(), self.ps_site), self._call(self.state, self.ps_site)
        kept = [(epoch, found) for epoch, ref in self.watched if (found := self._call(ref, None)) is not None]
        self._give_up_ps()
        if state is None or losses is None:
            self.tell(Told("unmeasured", self.job))
            return
        result = self.maker.outcome(self.program, losses, state, kept)
        if "unmeasured" in result:
            self._line(result["unmeasured"])
        self.tell(Told("result", self.job, result=result))

    def _save(self) -> bool:
        """Write a checkpoint that must not be missed; whether it is there, and the process still serves the job."""
        if self._written():
            return True
        if not self.closed:
            self._load()
        return False

    def _written(self) -> bool:
        """Write a checkpoint, trying again while there is no space; False if the process is lost, or at the end.

        Raises
        ------
        UnwrittenError
            If it cannot be written for another reason than a full disk, several times in a row.
        """
        tries = 0
        while not self.closed:
            self.saved_at = time.monotonic()
            try:
                return self._call(self.ps.save.remote(), self.ps_site) is not None
            except UnwrittenError as error:
                tries += 1
                if tries == 1:
                    self._line(f"{error}; it is tried again")
                if tries > _TRIES and not isinstance(error, DiskFullError):
                    raise
                time.sleep(_AGAIN_S)
        return False

    def _keep_checkpoint(self) -> None:
        """Write a checkpoint from time to time; one that cannot be written now is left out."""
        if self.ps_site is None or time.monotonic() - self.saved_at <= self.checkpoint_s:
            return
        self.saved_at = time.monotonic()
        try:
            lost = self._call(self.ps.save.remote(), self.ps_site) is None
        except UnwrittenError as error:
            self._line(f"{error}; it is trained on without")
            return
        if lost:
            self._load()


def _shared(content: bytes) -> Any:
    """A reference to `content` in Ray's object store, so that it is not sent with each call."""
    import ray  # noqa: PLC0415 - Ray is an extra

    return ray.put(content)


def _end(ps: Any) -> None:
    """Kill the process of a parameter server that does not answer; Ray restarts it."""
    import ray  # noqa: PLC0415 - Ray is an extra

    ray.kill(ps, no_restart=False)
