"""The study files: one TOML per figure, in this folder, with the paper's claim; its setting is the paper's reading."""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

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

from .reading import KEPT, Selection, all_readings

SEARCHED = 8
"""The seeds 0 to 7 are those of the search for a joint reading; claims are judged on seeds from 8 on."""

LiveSettings = SitePolicies | Curves | Disturbed | Preemptions | Rates
"""Settings of live studies; the others are simulated, or computed."""


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
    easier
        Why the metric is easier than the paper's, if it is: a claim that holds then holds by an easier metric.
    scaled
        Deviations of the setting from the paper's, with reasons, that no reading of the paper has.
    servers, job, scenario
        Of a live study: its servers, fields that all jobs share, and further fields of the scenario but for its
        workload, in the form of a scenario file.
    settings
        What is run and how the claim is judged; written down before the runs.
    reading, parameters
        The reading of the paper under which it is made, empty for those without one; and the parameters of the policies
        by it, by their registered names.
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
    easier: str | None = None
    scaled: list[str] = []
    servers: list[ServerForm] = []
    job: dict[str, Any] = {}
    scenario: dict[str, Any] = {}
    settings: Annotated[
        LiveSettings | Sweep | Gain | Course | Feasibility | Ratio | Ratios, Field(discriminator="kind")
    ]
    reading: str = ""
    parameters: dict[str, dict[str, Any]] = {}

    @property
    def name(self) -> str:
        """Paper and figure, and the reading, as in a file name."""
        return "-".join((self.paper, self.figure, *([self.reading] if self.reading and self.simulated else [])))

    @property
    def first_seed(self) -> int:
        """The first seed of its runs: a claim is judged on seeds that the search for a reading has not seen."""
        return SEARCHED if self.reading in KEPT and self.simulated else 0

    @property
    def figures(self) -> str:
        """The figures that it reproduces, in words."""
        return ", ".join((self.figure, *self.also))

    @property
    def trained(self) -> bool:
        """Whether its runs train for real."""
        return isinstance(self.settings, LiveSettings)

    @property
    def simulated(self) -> bool:
        """Whether it makes simulated runs: it does not train, and is no formula."""
        return not self.trained and not isinstance(self.settings, Feasibility)

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


def _content(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def study_under(content: dict[str, Any], reading: str, selection: Selection | None = None) -> Study:
    """The study of a file under a reading of its paper.

    Parameters
    ----------
    content
        Of the file.
    reading
        "plain", "joint", or the name of another one.
    selection
        The values of that other one.
    """
    if (text := all_readings().get(content["paper"])) is None:
        return Study.model_validate(content)
    values = text.selection(reading) if selection is None else selection
    return Study.model_validate(text.apply(content, values) | {"reading": reading})


@cache
def study_files() -> list[dict[str, Any]]:
    """The content of all study files, by paper and figure."""
    folder = Path(str(importlib.resources.files(__package__))) / "figures"
    return [_content(path) for path in sorted(folder.glob("*.toml"))]


def all_studies(readings: Sequence[str] = KEPT) -> list[Study]:
    """All studies, by paper and figure: simulated ones under each of these readings of their papers."""
    studies = list[Study]()
    for content in study_files():
        first, *others = (study_under(content, reading) for reading in readings)
        # what trains takes hours, and a formula has nothing to read in two ways
        studies += [first, *others] if first.simulated and first.reading else [first]
    return studies


def studies_of(paper: str, reading: str = KEPT[0]) -> list[Study]:
    """The studies of a paper, by figure, under a reading.

    Raises
    ------
    InputError
        If there are none; says which papers there are.
    """
    paper_studies = [study_under(content, reading) for content in study_files() if content["paper"] == paper]
    if not paper_studies:
        papers = sorted({content["paper"] for content in study_files()})
        raise InputError(f"paper {paper!r} has no studies; there are {', '.join(papers)}")
    return paper_studies


def find_study(paper: str, figure: str, reading: str = KEPT[0]) -> Study:
    """The study of a figure, under a reading.

    Raises
    ------
    InputError
        If there is none; says which figures there are.
    """
    by_figure = {figure: study for study in studies_of(paper, reading) for figure in (study.figure, *study.also)}
    if figure not in by_figure:
        raise InputError(f"figure {figure!r} of {paper} is not there; there are {', '.join(by_figure)}")
    return by_figure[figure]
