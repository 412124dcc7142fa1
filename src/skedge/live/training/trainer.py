"""One job's training: the controller's side of synchronous SGD.

A thread per job drives rounds. In a round every worker that the job holds computes one mini-batch at the present
version; the gradients that are there at the deadline go to the parameter server together. A worker that is preempted
leaves between two rounds: its mini-batch is finished and counted, its data stay where they are.
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
from .checkpoint import Life, UnwrittenError
from .maker import Calls
from .ps import NotLoadedError
from .training import Program

_DEADLINE_S, _SLOW_S = 10.0, 300.0
"""A worker that has not answered by then, or in three times its mean round, is left out of the round, and has twice as
long in the next, up to the second; loading and saving have that at once."""

_PATIENCE_S = 0.5
"""Pause before a round is tried again after a process was lost."""

_NEW, _ENOUGH, _CHANGED = 0.1, 20, 1.2
"""Weight of a round in the mean of their times, rounds between two tellings of it, and the change that is told."""

_DEATHS = 4
"""Calls one after the other that a process of the job ends in: it is the job's code then."""

_AGAIN_S = 1.0
"""Pause before a checkpoint that could not be written is tried again."""

_LOOK_S = 0.2
"""How often it is looked whether the server that a call went to is out of service."""


@dataclass(frozen=True)
class Team:
    """Workers that a job holds on one server: `width` of them, for these chunks.

    Attributes
    ----------
    turns
        Whether the chunks take turns on a lane: it is told when they have trained as much as one chunk.
    max_lag
        Most epochs by which a chunk may be ahead of the job's slowest; 0: no limit. Where there is one and the chunks
        take turns, each epoch is told too.
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
        Seconds that a round takes at least: how embedded servers have the speed of the announced ones; 0 on real ones.
    new_ps, release
        Get a process for the parameter server on a server, and end one.
    maker
        Measures what came out.
    log
        Takes a line for the job's log.
    servers
        Names of the servers, for the log.
    controllers
        How many controllers the run had before this one.
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
        self.joined = self.closed = False
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

    def put(self, number: int, team: Team) -> None:
        """Let a team work from the next round on."""
        with self.change:
            self.teams[number] = team
            self.joined = True
            self.held.pop(number, None)
            self.marks.pop(number, None)
            self.reported.difference_update(team.chunks)
            self.first_step.pop(number, None)
            self.leaving.discard(number)
            self.change.notify()

    def take(self, number: int) -> None:
        """Let a team go after its mini-batch; ``stopped`` is told then."""
        with self.change:
            self.leaving.add(number)
            self.change.notify()

    def serve_from(self, server: int) -> None:
        """Let the job's parameter server be on this server; it stays if it is there."""
        with self.change:
            self.site = server
            self.change.notify()

    def lose(self, server: int) -> None:
        """A server is out of service: no answer is waited for from it, and a parameter server there is given up."""
        with self.change:
            self.out.add(server)
            if self.site == server:
                self.site = None
            self.change.notify()

    def regain(self, server: int) -> None:
        """A server is back in service."""
        self.out.discard(server)

    def recall(self, told: Told) -> None:
        """Take in what this job's trainer told before the controller was lost: of one that has not begun."""
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
        """The job has paused and given its parameter server's slot back: its process is for others."""
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
        """Go round by round until the job is trained, fails, or is closed."""
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
        except Exception as error:  # whatever it is: a thread that ends without a word would leave the job hanging
            reason = f"its training has ended: {type(error).__name__}: {error}"
            self.tell(Told("failed", self.job, progress=tuple(self.progress), reason=reason))
        finally:
            if self.ps_site is not None:
                self.release(self.ps_site, self.ps)

    def _next_teams(self) -> dict[int, Team] | None:
        """Those that work in the next round; waits until there is something to do. None at the end."""
        with self.change:
            while True:
                self._let_go()
                self._hold_back()
                if self.closed:
                    return None
                if (self.teams and self.site is not None) or (self.ps_site is not None and self.site is None):
                    if self.joined:
                        self._write_off()
                        self.joined = False
                    self.due = self.due or time.monotonic()
                    return dict(self.teams)
                self._write_off()
                self.change.wait()

    def _write_off(self) -> None:
        """Make up for nothing any more: a chunk that joins must not train faster for rounds that were slow before."""
        self.late_s, self.behind_s, self.due = self.late_s + self.behind_s, 0.0, 0.0

    def _let_go(self) -> None:
        for number in sorted(self.leaving):
            self.held.pop(number, None)
            if self.teams.pop(number, None) is not None:
                self.tell(self._fact("stopped", number))
        self.leaving.clear()

    def _hold_back(self) -> None:
        """Let teams go whose chunks are all ahead; tell of those that no longer are, and of what turns have trained."""
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
        """Chunks' worth of mini-batches that a team has trained, and, where its lag is bounded, its epochs."""
        done = [self.progress[chunk] for chunk in team.chunks]
        return sum(done) // self.program.steps, min(done) // self.program.minibatches if team.max_lag else 0

    def _is_ahead(self, team: Team) -> bool:
        """Whether the team's least trained chunk may not begin its next epoch: rule M39."""
        if not team.max_lag or not (left := self._next_chunks(team)):
            return False
        epoch, begun = divmod(self.progress[left[0]], self.program.minibatches)
        return begun == 0 and epoch >= min(self.progress) // self.program.minibatches + team.max_lag

    def _fact(self, what: str, team: int) -> Told:
        late, lost = self.late_s + self.behind_s, self.recovery_s
        self.late_s, self.recovery_s = -self.behind_s, 0.0
        return Told(what, self.job, team, tuple(self.progress), late_s=late, recovery_s=lost, module=self.module)

    def _move_ps(self) -> bool:
        """Bring the parameter server to where it is assigned; whether it is up."""
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
        """Let the process serve the job from its newest checkpoint; the progress there is what counts."""
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
        """Go on from what a checkpoint holds; mini-batches that are not in it are trained again.

        Raises
        ------
        TrainingError
            If one of them is of a chunk that was reported as trained: no worker will train it again.
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
        """A line for the job's log, at most one a second."""
        now = time.monotonic()
        if now - self.said_at >= 1:
            self.said_at = now
            done, steps = sum(self.progress), self.program.steps * self.program.chunks
            self._line(f"update {self.version}: {done} of {steps} mini-batches, loss {sum(losses) / len(losses):.4g}")

    def _line(self, line: str) -> None:
        if self.log is not None:
            self.log(line)

    def _watch(self) -> None:
        """Keep the parameters after each epoch's worth of mini-batches; they are measured at the end, in nobody's way.

        Epochs are counted over all chunks together: a chunk that waits for its lane would hold back any other count.
        """
        epoch = sum(self.progress) // (self.program.chunks * self.program.minibatches)
        if self.program.watch and epoch > (self.watched[-1][0] if self.watched else 0):
            self.watched.append((epoch, self.state))

    def _next_chunks(self, team: Team) -> list[int]:
        """The least trained chunks of a team, one for each of its workers."""
        left = [chunk for chunk in team.chunks if self.progress[chunk] < self.program.steps]
        return sorted(left, key=lambda chunk: (self.progress[chunk], chunk))[: team.width]

    def _call(self, ref: Any, server: int | None, deadline: float | None = None) -> Any:
        """The answer to a call on a server, or None if its process is lost or late.

        Raises
        ------
        TrainingError
            If the job itself is at fault.
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
                raise error.cause from None  # Ray's own error has the whole traceback for its text
            raise TrainingError(f"{type(error.cause).__name__}: {error.cause}") from error

    def _ended(self, server: int | None) -> None:
        """A process of this job has ended in a call; one that was killed from outside is not the job's fault.

        Raises
        ------
        TrainingError
            If that happens again and again without an update between.
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
        """Tell of the speed when it has changed by a fifth: the mean over the last rounds, at least the announced."""
        round_s = max(round_s, self.pace)
        self.round_s = round_s if self.round_s == 0.0 else (1 - _NEW) * self.round_s + _NEW * round_s
        self.rounds += 1
        told = self.told_s or self.pace
        if self.rounds >= _ENOUGH and (told == 0.0 or not 1 / _CHANGED < self.round_s / told < _CHANGED):
            self.told_s, self.rounds = self.round_s, 0
            self.tell(Told("measured", self.job, round_s=self.round_s))

    def _keep_pace(self) -> None:
        """Wait until the round has taken as long as announced; what a slow one took too long the next may make up."""
        self.due += self.pace
        wait = self.due - time.monotonic()
        self.behind_s = max(0.0, -wait)
        if wait > 0:
            time.sleep(wait)

    def _dismiss_finished(self) -> bool:
        """Tell of teams all of whose chunks are trained, once that cannot be lost; whether there was one."""
        with self.change:
            done = [
                number
                for number, team in self.teams.items()
                if all(self.progress[chunk] >= self.program.steps for chunk in team.chunks)
            ]
        if not done or not self._save():
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
        """Have it measured what came out, elsewhere: the parameter server's slot is for the next job."""
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
        """Write a checkpoint, trying again while there is no space; False if the process is lost, or at the end."""
        waits = 0.0
        while not self.closed:
            self.saved_at = time.monotonic()
            try:
                return self._call(self.ps.save.remote(), self.ps_site) is not None
            except UnwrittenError as error:
                if waits == 0.0:
                    self._line(f"{error}; it is tried again until there is space")
                time.sleep(_AGAIN_S)
                waits += _AGAIN_S
                self.late_s += time.monotonic() - self.saved_at
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
    """Where every process finds `content`, without its being sent with each call."""
    import ray  # noqa: PLC0415 - Ray is an extra

    return ray.put(content)


def _end(ps: Any) -> None:
    """End the process of a parameter server that does not answer; Ray starts it again."""
    import ray  # noqa: PLC0415 - Ray is an extra

    ray.kill(ps, no_restart=False)
