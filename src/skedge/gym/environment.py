"""The environment of Gymnasium: an episode is a run of a scenario, a step is an answer to a question of the policy."""

from __future__ import annotations

from collections.abc import Generator
from operator import index
from typing import Any

import gymnasium
import numpy as np
import polars as pl
from gymnasium import spaces

from skedge.core.errors import InputError
from skedge.core.events import Event
from skedge.core.model.scenario import Scenario
from skedge.core.model.time_limits import has_time_limits
from skedge.core.model.wording import did_you_mean
from skedge.optimum.problems import Reference, reference
from skedge.prepare import offers
from skedge.recorded_run import Run
from skedge.runs.meta import meta_of
from skedge.scenario.file import Source, scenario_of
from skedge.sim.failures import world_of
from skedge.simulate import run

from .admission import JobAdmitter
from .dispatch import ChunkDispatcher
from .interactive import InteractiveKernel, InteractivePolicy, Mask, Observation, Question, next_decision

INSTANCES = 32
"""Default number of instances of a scenario that episodes are drawn from."""


class SchedulingEnv(gymnasium.Env[Observation, np.int64]):
    """A scenario whose policy asks for each decision.

    An episode is one run of one instance, which is the scenario at a seed: 0 to `instances` - 1, drawn by the
    generator of ``reset(seed=...)``, or ``reset(options={"instance": 7})``. An instance has the same jobs every time.

    Observations are the features of each action, shape ``(actions, features)``, in [0, 1]; actions are numbers of
    those that ``info["action_mask"]`` allows. A reward is the change of the objective since the step before, over the
    instance's bound: for completion times, minus the time that jobs spent in the system. The return of an episode is
    therefore minus the ratio of its total JCT to the bound (at most -1), or its total utility over the bound (at most
    1). At the end, ``info["run"]`` is the run, to verify and measure like any other.

    Parameters
    ----------
    policy
        Asks the questions.
    problem
        Name of the problem whose bound rewards are relative to (:mod:`skedge.optimum.problems`).
    scenario
        A scenario file, the name of a shipped one, or a function of the seed; its cluster must have the same actions
        at every seed.
    instances
        Number of instances to draw from.

    Raises
    ------
    InputError
        If the policy does not fit the scenario, or an action is not possible.
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - as Gymnasium has it

    def __init__(self, policy: InteractivePolicy, problem: str, scenario: Source, instances: int = INSTANCES) -> None:
        if instances < 1:
            raise InputError(f"instances: {instances}; it must be at least 1")
        self.policy, self.problem, self.source, self.instances = policy, problem, scenario, instances
        # Bounds take seconds: each instance's is computed once, however often it is drawn.
        self._instances: dict[int, tuple[Scenario, Reference]] = {}
        first, _ = self._instance(0)
        actions = policy.actions(first.cluster)
        self.action_space = spaces.Discrete(actions)
        self.observation_space = spaces.Box(0.0, 1.0, (actions, policy.features), np.float32)
        self._question: Question | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin a run of an instance; its first question.

        Raises
        ------
        InputError
            If `options` names no instance, or the instance has no decision or no bound.
        """
        super().reset(seed=seed)
        instance = _instance_in(options or {}, int(self.np_random.integers(self.instances)))
        scenario, self.reference = self._instance(instance)
        self._episode = _Episode(scenario, self.policy)
        self._rewarded = 0.0
        question = self._episode.next(None)
        if question is None:
            raise InputError(f"{scenario.name}: it has no decision at seed {instance}")
        self._question = question
        return question.observation, {"action_mask": question.mask.astype(np.int8), "instance": instance}

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Answer the question; the next one, or at the end the same observation without possible actions.

        Raises
        ------
        InputError
            If the action is not possible now, or the episode has ended.
        """
        # Checked, not clipped: a wrong mask in the learner must not look like a poor policy.
        question, answer = self._open_question(), _int("action", action)
        if not (0 <= answer < len(question.mask) and question.mask[answer]):
            possible = ", ".join(map(str, np.flatnonzero(question.mask)))
            raise InputError(f"action {answer}: is not possible now; possible are {possible}")
        self._question = self._episode.next(answer)
        value = self._episode.value(self.reference.sense)
        # Differences add up: the return of an episode is the objective over the bound, whatever the number of steps.
        reward, self._rewarded = (value - self._rewarded) / self.reference.bound.value, value
        if self._question is not None:
            return self._question.observation, reward, False, False, self._info()
        # Gymnasium wants an observation at the end too; nothing is decided on it.
        return question.observation, reward, True, False, self._info() | {"run": self._episode.run()}

    def action_masks(self) -> Mask:
        """True for the possible actions, for MaskablePPO of sb3-contrib."""
        return self._open_question().mask

    def _open_question(self) -> Question:
        if self._question is None:
            raise InputError("the episode has ended, or not begun; call reset first")
        return self._question

    def _info(self) -> dict[str, Any]:
        # At the end no action is possible; a copy of the last mask would invite one more.
        mask = np.zeros(int(self.action_space.n), np.int8) if self._question is None else self._question.mask
        return {"action_mask": mask.astype(np.int8)}

    def _instance(self, seed: int) -> tuple[Scenario, Reference]:
        """The scenario at `seed` and its bound, both computed once."""
        if seed not in self._instances:
            scenario = scenario_of(self.source, seed)
            missing = self.policy.needs - offers(scenario)
            if missing:
                raise InputError(f"{scenario.name}: this environment needs {', '.join(sorted(missing))}")
            if has_time_limits(scenario):  # a job that fails leaves early, which would be rewarded
                raise InputError(f"{scenario.name}: rewards are of jobs that may take any time: leave out their limits")
            bound = reference(scenario, (self.problem,))
            if bound is None:
                raise InputError(f"{scenario.name}: there is no bound of problem {self.problem!r}")
            self._check_all_finish(scenario, bound)
            self._instances[seed] = scenario, bound
        return self._instances[seed]

    def _check_all_finish(self, scenario: Scenario, bound: Reference) -> None:
        """Reject a job that can never run, where the bound is of schedules that train every job."""
        if bound.sense == "lower":
            # Which jobs are impossible does not depend on the answers: one run with any shows them.
            rejected = run(scenario, type(self.policy)()).jobs.filter(pl.col("state") == "rejected")
            if len(rejected):
                reason = f"{rejected['reason'][0]}; rewards are of schedules that train every job: leave it out"
                raise InputError(f"{scenario.name}: job {rejected['id'][0]!r}: {reason}")


def _instance_in(options: dict[str, Any], default: int) -> int:
    """The instance that the options of a reset name, or else the one drawn."""
    for name in options:
        if name != "instance":
            raise InputError(f"options: {name!r} is none{did_you_mean(name, ['instance'])}; there is instance")
    instance = _int("options: instance", options.get("instance", default))
    if instance < 0:
        raise InputError(f"options: instance: {instance}; it must be at least 0")
    return instance


def _int(name: str, value: Any) -> int:
    """A whole number, as Gymnasium and numpy give it."""
    try:
        return index(value)
    except TypeError:
        raise InputError(f"{name}: {value!r}; it must be a whole number") from None


class _Episode:
    """A run that stops at each question."""

    def __init__(self, scenario: Scenario, policy: InteractivePolicy) -> None:
        self.scenario = scenario
        self.kernel = InteractiveKernel(scenario, policy)
        self.world = world_of(self.kernel)
        self.system_time_s = self.utility = 0.0
        self.active = self.time = 0
        self._steps = self._drive()

    def next(self, answer: int | None) -> Question | None:
        """The next question, after the answer to the one before; None at the end."""
        return next_decision(self._steps, answer)

    def _drive(self) -> Generator[Question, int, None]:
        while (event := self.world.next_event()) is not None:
            self._accumulate(event)
            orders = yield from self.kernel.handle_interactively(event)
            for order in orders:
                self.world.perform(order)
            self.active = len(self.kernel.active())
        # Once an episode: a policy that breaks an invariant of the kernel must not train on.
        self.kernel.validate_state()

    def _accumulate(self, event: Event) -> None:
        """Add the time that jobs spent in the system, and the utility of those that have finished."""
        # `active` is the number of jobs since the last event: their integral over time is the sum of the JCTs.
        self.system_time_s += self.active * (event.time - self.time) / 1e6
        self.time = event.time
        physics, jobs = self.scenario.physics, self.scenario.jobs
        for job in event.finished:
            value, is_late = jobs.utility[job], physics.horizon is not None and event.time > physics.horizon
            if value is not None and not is_late:
                self.utility += value((event.time - int(jobs.arrival[job])) / physics.slot)

    def value(self, sense: str) -> float:
        """The objective so far: minus the total time in the system [s], or the total utility."""
        return -self.system_time_s if sense == "lower" else self.utility

    def run(self) -> Run:
        """The record of the run that has ended."""
        policy = self.kernel.policy
        return Run(self.scenario, meta_of(self.scenario, policy), self.kernel.record.schedule(self.world.runs()))


def chunk_dispatch(scenario: Source = "gym-dispatch", instances: int = INSTANCES) -> SchedulingEnv:
    """``skedge/ChunkDispatch-v0``: total JCT, relative to the bound of schedules that dispatch chunks."""
    return SchedulingEnv(ChunkDispatcher(), "chunks", scenario, instances)


def admission(scenario: Source = "gym-admission", instances: int = INSTANCES) -> SchedulingEnv:
    """``skedge/Admission-v0``: total utility, relative to its bound."""
    return SchedulingEnv(JobAdmitter(), "utility", scenario, instances)
