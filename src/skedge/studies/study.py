"""The study files: one TOML per figure, in this folder, with the paper's claim and our setting."""

from __future__ import annotations

import importlib.resources
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from skedge.core.errors import InputError
from skedge.scenario.schema import ServerForm
from skedge.studies.kinds.at_sites import SitePolicies
from skedge.studies.kinds.course import Course
from skedge.studies.kinds.curves import Curves
from skedge.studies.kinds.disturbed import Disturbed
from skedge.studies.kinds.feasibility import Feasibility
from skedge.studies.kinds.preemptions import Preemptions
from skedge.studies.kinds.rates import Rates
from skedge.studies.kinds.ratio import Ratio
from skedge.studies.kinds.ratios import Ratios
from skedge.studies.kinds.sweep import Gain, Sweep

LiveSettings = SitePolicies | Curves | Disturbed | Preemptions | Rates
"""Settings of live studies; the others are simulated, or computed."""


class Hypothesis(BaseModel):
    """Why a claim may not hold.

    Attributes
    ----------
    about
        A setting that the paper leaves open, a reading of the paper, the strength of a baseline, or the metric.
    text
        What would have to be so, for "the claim holds if ...".
    settings
        The study's settings that are different then; those of `set` are added to the study's.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    about: Literal["setting", "reading", "baseline", "metric"]
    text: str
    settings: dict[str, Any] = Field(min_length=1)


class Printed(BaseModel):
    """A number that the paper prints.

    Attributes
    ----------
    text
        What the paper says.
    at
        The number as a value of the figure's y axis, where a line marks it; None: nowhere.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str
    at: float | None = None


class Study(BaseModel):
    """A study file.

    Attributes
    ----------
    also
        Further figures of the paper that it reproduces.
    claim
        The paper's claim about the figure; our own claim, if `ours`.
    printed
        Numbers that the paper's text gives for the figure.
    seeds, cap
        Number of seeds (0, 1, ...) at the first look. It doubles until the claim is decided, or `cap` is reached.
    runs_of
        The figure whose runs or optima are this one's, too: its minutes count there.
    minutes
        About how long it takes on 2 cores until it is decided or at its cap [min].
    scaled
        Deviations of the setting from the paper's, with reasons.
    servers, job, scenario
        Of a live study: its servers, fields that all jobs share, and further fields of the scenario but for its
        workload, in the form of a scenario file.
    settings
        What is run and how the claim is judged; written down before the runs.
    hypotheses
        If the claim does not hold: what may be the reason, tested in the same way.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    figure: str
    also: list[str] = []
    title: str
    claim: str
    ours: bool = False
    printed: list[Printed] = []
    seeds: int = Field(8, ge=1)
    cap: int = Field(64, ge=1)
    runs_of: str | None = None
    minutes: float = Field(gt=0)
    scaled: list[str] = Field(min_length=1)
    servers: list[ServerForm] = []
    job: dict[str, Any] = {}
    scenario: dict[str, Any] = {}
    settings: Annotated[
        LiveSettings | Sweep | Gain | Course | Feasibility | Ratio | Ratios, Field(discriminator="kind")
    ]
    hypotheses: list[Hypothesis] = []

    @property
    def name(self) -> str:
        """Paper and figure, as in a file name."""
        return f"{self.paper}-{self.figure}"

    @property
    def figures(self) -> str:
        """The figures that it reproduces, in words."""
        return ", ".join((self.figure, *self.also))

    @property
    def trained(self) -> bool:
        """Whether its runs train for real."""
        return isinstance(self.settings, LiveSettings)

    @property
    def with_trace(self) -> bool:
        """Whether its arrivals are those of a trace, which is not shipped."""
        return getattr(self.settings, "with_trace", False)

    @property
    def looks(self) -> tuple[int, ...]:
        """Numbers of seeds after which the claim is judged."""
        # doubling: few looks, so that the correction for them costs little
        counts = [self.seeds]
        while counts[-1] < self.cap:
            counts.append(min(2 * counts[-1], self.cap))
        return tuple(counts)

    def under(self, hypothesis: Hypothesis) -> Study:
        """A copy of the study with the settings of a hypothesis."""
        # without defaults: the models check the changed settings as if a file stated them
        settings = self.settings.model_dump(exclude_defaults=True)
        # `set` is merged field by field; any other setting is replaced
        extra_set = {**settings.get("set", {}), **hypothesis.settings.get("set", {})}
        settings |= {"kind": self.settings.kind, **hypothesis.settings, **({"set": extra_set} if extra_set else {})}
        return Study.model_validate({**self.model_dump(exclude_defaults=True), "settings": settings, "hypotheses": []})


def read_study(path: Path) -> Study:
    """Read a study file."""
    return Study.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))


def all_studies() -> list[Study]:
    """All studies, by paper and figure."""
    folder = Path(str(importlib.resources.files(__package__))) / "figures"
    return [read_study(path) for path in sorted(folder.glob("*.toml"))]


def studies_of(paper: str) -> list[Study]:
    """The studies of a paper, by figure.

    Raises
    ------
    InputError
        If there are none; says which papers there are.
    """
    studies = all_studies()
    paper_studies = [study for study in studies if study.paper == paper]
    if not paper_studies:
        raise InputError(f"paper {paper!r} has no studies; there are {', '.join(sorted({s.paper for s in studies}))}")
    return paper_studies


def find_study(paper: str, figure: str) -> Study:
    """The study of a figure.

    Raises
    ------
    InputError
        If there is none; says which figures there are.
    """
    by_figure = {figure: study for study in studies_of(paper) for figure in (study.figure, *study.also)}
    if figure not in by_figure:
        raise InputError(f"figure {figure!r} of {paper} is not there; there are {', '.join(by_figure)}")
    return by_figure[figure]
