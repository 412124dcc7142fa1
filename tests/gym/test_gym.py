"""The environments of Gymnasium: the rules of the library, rewards against the bound, and policies that are trained."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import yaml

import skedge
from builders.paths import CASES
from skedge.analysis.verify.rules import Violation
from skedge.core.errors import InputError

gymnasium = pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env  # noqa: E402

from skedge.gym import ChunkDispatcher, JobAdmitter, SchedulingEnv  # noqa: E402
from skedge.testing import check_policy  # noqa: E402

NAMES = ["skedge/ChunkDispatch-v0", "skedge/Admission-v0"]


@pytest.fixture(scope="module", params=NAMES)
def env(request) -> SchedulingEnv:
    return gymnasium.make(request.param, instances=2).unwrapped


def played(env: SchedulingEnv, instance: int, rng: np.random.Generator | None = None) -> tuple[list, float, dict]:
    """Observations and return of an episode with random actions, or the first possible ones; the last info."""
    observation, info = env.reset(seed=0, options={"instance": instance})
    seen, total, done = [observation], 0.0, False
    while not done:
        possible = np.flatnonzero(info["action_mask"])
        action = possible[0] if rng is None else rng.choice(possible)
        observation, reward, done, _, info = env.step(action)
        seen.append(observation)
        total += reward
    return seen, total, info


def test_the_checker_of_gymnasium_has_nothing_to_say(env):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env, skip_render_check=True)


def test_the_return_is_the_objective_over_the_bound_and_the_run_is_sound(env):
    _, total, info = played(env, 1, np.random.default_rng(0))
    run, to = info["run"], env.reference
    value = run.metrics[to.metric] / to.bound.value
    assert total == pytest.approx(-value if to.sense == "lower" else value, rel=1e-9)
    assert (value >= 1) == (to.sense == "lower")
    assert run.verify() == []


def test_an_instance_and_the_actions_determine_the_episode(env):
    first, again = (played(env, 0, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first[0], again[0])
    assert first[1] == again[1]
    other = played(env, 1, np.random.default_rng(3))
    assert not np.array_equal(first[0][0], other[0][0])


def test_observations_are_in_the_space_and_masks_allow_an_action(env):
    seen, _, _ = played(env, 0, np.random.default_rng(1))
    assert all(observation in env.observation_space for observation in seen)
    env.reset(seed=1)
    assert env.action_masks().any()
    assert env.action_masks().shape == (env.action_space.n,)


def test_a_policy_that_answers_by_itself_makes_the_run_of_the_environment(env):
    _, _, info = played(env, 1)
    alone = skedge.run(info["run"].scenario, type(env.policy)())
    assert alone.schedule.jobs.equals(info["run"].schedule.jobs)
    assert alone.schedule.runs.equals(info["run"].schedule.runs)


def test_an_impossible_action_is_refused(env):
    env.reset(seed=0)
    with pytest.raises(InputError, match=r"action 99: is not possible now; possible are 0"):
        env.step(99)


def full_storage(**of_c: object) -> dict[str, object]:
    """The case of full storage, with fields of its job c changed."""
    fields = yaml.safe_load((CASES / "gym-full-storage.yaml").read_text())
    fields["workload"]["jobs"][2] |= of_c
    return fields


def test_a_job_that_finds_no_room_waits_as_under_a_online():
    """Jobs a and b fill both servers to 200 and 205 s; c needs room on both, so it comes at 205 and takes 100 s."""
    env = gymnasium.make(NAMES[0], scenario=CASES / "gym-full-storage.yaml", instances=1).unwrapped
    env.reset(seed=0)
    total, masks = 0.0, []
    for action in (0, 0, 1, 1, 0, 1):
        masks.append(env.action_masks().tolist())
        _, reward, done, _, info = env.step(action)
        total += reward
    assert done
    both, second = [True, True, False], [False, True, False]
    assert masks == [both, both, second, second, both, second], "n0 is full of a, then of one chunk of c"
    jobs = info["run"].jobs
    assert jobs["state"].to_list() == ["finished"] * 3
    assert (jobs["completion"] / 10**6).to_list() == [200, 205, 305]
    assert info["run"].verify() == []
    assert total == pytest.approx(-(200 + 200 + 295) / env.reference.bound.value)
    assert total <= -1
    assert skedge.run(CASES / "gym-full-storage.yaml", "aonline").jobs["state"].to_list() == ["finished"] * 3


def test_a_job_that_can_never_be_trained_is_refused_with_its_reason(tmp_path):
    """Each server holds a chunk of 90 MB, and c has three: without it the return would rise above -1."""
    file = tmp_path / "never.yaml"
    file.write_text(yaml.safe_dump(full_storage(chunk_mb=90, chunks=3)))
    says = "job 'c': never_fits: its chunks exceed the storage of all qualified servers; rewards are of schedules that"
    with pytest.raises(InputError, match=says):
        gymnasium.make(NAMES[0], scenario=file, instances=1)


def test_jobs_with_limits_of_their_time_are_refused(tmp_path):
    """One that fails leaves early: without it the return would rise."""
    file = tmp_path / "limited.yaml"
    file.write_text(yaml.safe_dump(full_storage(max_run_time_s=3)))
    with pytest.raises(InputError, match="rewards are of jobs that may take any time: leave out their limits"):
        gymnasium.make(NAMES[0], scenario=file, instances=1)


@pytest.mark.parametrize("seed", range(6))
def test_no_return_is_above_its_documented_maximum(seed, tmp_path):
    """Storage that is full most of the time, servers that fail, any actions: every job is trained, at most -1."""
    fields = full_storage()
    more = [
        {**job, "id": f"{job['id']}{n}", "arrival_s": 40 * n} for n in range(3) for job in fields["workload"]["jobs"]
    ]
    fields["workload"]["jobs"] = more
    fields["physics"] = {"mtbf": "300s", "mttr": "20s"} if seed % 2 else {}
    file = tmp_path / "full.yaml"
    file.write_text(yaml.safe_dump(fields))
    env = gymnasium.make(NAMES[0], scenario=file, instances=1).unwrapped
    _, total, info = played(env, 0, np.random.default_rng(seed))
    assert set(info["run"].jobs["state"]) == {"finished"}
    assert info["run"].verify() == []
    assert total <= -1


def test_a_step_after_the_end_is_refused(env):
    played(env, 0)
    with pytest.raises(InputError, match="call reset first"):
        env.step(0)


@pytest.mark.parametrize("policy", [ChunkDispatcher, JobAdmitter])
def test_what_answers_is_a_policy_that_keeps_the_contract(policy):
    check_policy(policy)


def test_a_dispatcher_that_sends_all_to_the_slowest_lane_is_worse_than_a_online():
    """The choice matters: rewards part good answers from bad ones."""
    scenario = skedge.default_scenario("gym-dispatch", 1)
    one = skedge.run(scenario, ChunkDispatcher())
    best = skedge.run(scenario, "aonline")
    assert one.metrics["jct_total_s"] > 1.5 * best.metrics["jct_total_s"]
    assert one.verify() == list[Violation]()


def test_a_scenario_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="this environment needs a horizon, a utility of every job"):
        gymnasium.make(NAMES[1], scenario="gym-dispatch")


def test_without_the_extra_it_is_said_in_a_sentence():
    code = """
import importlib.util as util
find = util.find_spec
util.find_spec = lambda name, *more: None if name == "gymnasium" else find(name, *more)
import skedge.gym
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "this needs the extra `gym`: pip install 'skedge[gym]'" in ended.stderr


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"instnace": 3}, r"options: 'instnace' is none \(did you mean instance\?\)"),
        ({"instance": "x"}, "options: instance: 'x'; it must be a whole number"),
        ({"instance": -1}, "options: instance: -1; it must be at least 0"),
    ],
)
def test_wrong_options_are_one_sentence(options: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        gymnasium.make("skedge/ChunkDispatch-v0").reset(options=options)


def test_an_action_is_a_whole_number() -> None:
    env = gymnasium.make("skedge/ChunkDispatch-v0").unwrapped
    env.reset(seed=0)
    with pytest.raises(InputError, match="action: 'a'; it must be a whole number"):
        env.step("a")
