"""Jobs whose own code misbehaves, as the model of a job's process expresses it.

What a job does is in the arguments of its program: ``misbehaves`` names one of :data:`MISDEEDS`, ``during`` the call in
which it does that, and ``at`` the mini-batch, as "chunk step". The mini-batch counts where a call is about some; other
calls misbehave whenever they are made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import Any

SHARE = 0.12
"""Share of the jobs whose code misbehaves."""

ENDS = "its code ends the process"
RAISES = "its code raises an error"
STALLS = "has not returned after"


@dataclass(frozen=True)
class Misdeed:
    """One way to misbehave.

    Attributes
    ----------
    effect
        What happens in the call: ``raise``, ``hang``, ``end`` (the process), ``garbage`` (facts that are none), ``nan``
        (a loss), ``shape`` (a gradient that does not fit the parameters), ``memory`` (more than it may use).
    during
        The calls of which one is drawn.
    reason
        Part of the reason for which the job then fails; empty: it does not fail.
    times
        How often; 0: always.
    """

    effect: str
    during: tuple[str, ...]
    reason: str = ""
    times: int = 0


ANY_CALL = ("gradient", "gradient", "apply", "load", "contents", "dump")

MISDEEDS: Mapping[str, Misdeed] = MappingProxyType(
    {
        "raises": Misdeed("raise", ANY_CALL, RAISES),
        "hangs": Misdeed("hang", ("gradient", "apply"), STALLS),
        "ends": Misdeed("end", ("gradient", "apply", "load", "contents"), ENDS),
        "garbage": Misdeed("garbage", ("gradient", "apply", "load", "contents", "dump"), "with a wrong"),
        "nan": Misdeed("nan", ("gradient",), "with a wrong loss"),
        "shape": Misdeed("shape", ("gradient",), "does not fit"),
        "memory": Misdeed("memory", ("gradient", "apply", "load", "contents"), "more memory than"),
        "hangs once": Misdeed("hang", ("gradient", "apply"), times=1),
        "ends once": Misdeed("end", ("gradient", "apply", "load", "contents"), times=1),
        "fails its test": Misdeed("raise", ("accuracies",)),
        "ends its test": Misdeed("end", ("accuracies",)),
    }
)
"""By name. Those that fail a job do so whatever else happens; the last four have no such effect."""


def misbehaving(random: Random, job: dict[str, Any]) -> dict[str, Any]:
    """The spec of a job, some of which misbehave."""
    args = job["train"]["args"]
    if "misbehaves" in args or random.random() >= SHARE:
        return job
    name = random.choice(list(MISDEEDS))
    chunk = random.randrange(job.get("chunks") or sum(job["data"].values()))
    at = f"{chunk} {random.randrange(job['epochs'] * job['minibatches'])}"
    new = {**args, "misbehaves": name, "during": random.choice(MISDEEDS[name].during), "at": at}
    return {**job, "train": {**job["train"], "args": new}}


def reason_of(job: Mapping[str, Any]) -> str:
    """Part of the reason for which a job with this spec fails; empty if it must not."""
    args = job["train"]["args"]
    return MISDEEDS[args["misbehaves"]].reason if "misbehaves" in args else ""


class Misdeeds:
    """What the jobs of a run have done so far."""

    def __init__(self) -> None:
        self._times = Counter[str]()

    def effect(self, args: Mapping[str, Any], method: str, minibatches: list[str]) -> str:
        """What a job does in a call; empty if it behaves.

        Parameters
        ----------
        args
            Those of its program.
        method
            The method that is called.
        minibatches
            Those that the call is about, as "chunk step", or the chunks.
        """
        if args.get("during") != method or (minibatches and args["at"] not in minibatches):
            return ""
        misdeed = MISDEEDS[args["misbehaves"]]
        self._times[args["job"]] += 1
        return misdeed.effect if not misdeed.times or self._times[args["job"]] <= misdeed.times else ""
