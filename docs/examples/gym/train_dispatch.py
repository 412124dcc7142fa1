"""Train a small policy that dispatches chunks, and set it beside A_online.

    pip install 'skedge[gym]' sb3-contrib
    python docs/examples/gym/train_dispatch.py [--steps 60000]

Proximal policy optimisation with masked actions (sb3-contrib) on 32 instances of the scenario `gym-dispatch`; the
comparison is on five others, and every run in it is verified. Some minutes on one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import gymnasium
import torch
from sb3_contrib import MaskablePPO

import skedge
from skedge.gym import ChunkDispatcher, Question

UNSEEN = range(100, 105)
"""Seeds of the instances of the comparison; training draws from 0 to 31."""


def trained(steps: int) -> MaskablePPO:
    """The model after this number of decisions."""
    torch.set_num_threads(1)
    env = gymnasium.make("skedge/ChunkDispatch-v0")
    network = {"net_arch": [64, 64]}
    model = MaskablePPO(
        "MlpPolicy", env, policy_kwargs=network, n_steps=1024, batch_size=256, gamma=1.0, gae_lambda=0.97, seed=0
    )
    return model.learn(steps)


def chooser(model: MaskablePPO) -> Callable[[Question], int]:
    """What answers a question with the action that the model finds best."""

    def choose(question: Question) -> int:
        action, _ = model.predict(question.observation, action_masks=question.mask, deterministic=True)
        return int(action)

    return choose  # a function, as each run has a copy of its policy, and a model cannot be copied


def main() -> None:
    """Train, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60_000)
    began = time.process_time()
    model = trained(parser.parse_args().steps)
    print(f"trained in {time.process_time() - began:.0f} s of CPU")
    policies = [ChunkDispatcher(chooser(model)), ChunkDispatcher(), "aonline", "srtf"]
    names = ["trained", "first lane", "aonline", "srtf"]
    for name, policy in zip(names, policies, strict=True):
        found = skedge.compare(partial(skedge.default_scenario, "gym-dispatch"), [policy], UNSEEN, processes=1)
        estimate = found.estimate(found.policies[0], "bound_ratio")
        broken = sum(map(len, (found.violations or {})[found.policies[0]]))
        print(f"{name}: total JCT {estimate.mean:.3f} times the bound, {broken} rules broken")


if __name__ == "__main__":
    main()
