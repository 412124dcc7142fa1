"""Readings of the papers: what each text leaves open or contradicts, the values that it allows, and the one chosen.

A paper has one file in ``readings``, and all of its figures are made under one *selection*: a value for each choice.
Two selections are kept. *plain* is the first that a reader would take; *joint* is the one under which most parts of
the paper's claims hold, found by a search over the values that the text allows (:mod:`.search`). What a paper prints
for one figure alone stands in its reading, too, so that a figure's own file says no more than its axis and its claim.
"""

from __future__ import annotations

import importlib.resources
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from skedge.core.errors import InputError
from skedge.core.model.wording import did_you_mean

Selection = Mapping[str, str]
"""The value of each choice, by their names."""

KEPT = ("plain", "joint")
"""The readings that are kept."""

_SIMULATED = {"sweep", "gain", "course", "ratio", "ratios"}
"""Kinds of studies that simulate a shipped scenario; the others train on servers of their own, or are formulas."""


class Setting(BaseModel):
    """What is set for a figure, or for all of a paper.

    Attributes
    ----------
    set
        Fields of the scenario, by their dotted names.
    policies
        Parameters of policies, by registered name.
    settings
        Fields of a figure's settings, by figure.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    set: dict[str, Any] = {}
    policies: dict[str, dict[str, Any]] = {}
    settings: dict[str, dict[str, Any]] = {}


class ChoiceValue(Setting):
    """A value of a choice; `text`: the value in words."""

    text: str


class PrintedSetting(Setting):
    """What a paper prints for some figures alone.

    Attributes
    ----------
    figures
        Those figures.
    text, at
        The paper's words, and their place.
    """

    figures: list[str] = Field(min_length=1)
    text: str
    at: str


class OpenChoice(BaseModel):
    """Something that a paper's text leaves open or contradicts.

    Attributes
    ----------
    name
        In one word or more, joined by underscores.
    text, at
        The text's own words, or that it is silent, and their place.
    open
        What it leaves open, or what it contradicts.
    plain, joint
        Names of the values of the two readings.
    why
        Why the plain value is the first that a reader would take.
    figures
        The figures that it concerns; default: all.
    values
        What the text allows, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    text: str
    at: str
    open: str
    plain: str
    joint: str
    why: str
    figures: list[str] = []
    values: dict[str, ChoiceValue] = Field(min_length=2)

    @model_validator(mode="after")
    def _knows_its_values(self) -> OpenChoice:
        for reading in KEPT:
            if (value := getattr(self, reading)) not in self.values:
                raise ValueError(f"{self.name}: {reading} is {value!r}, which is none of {', '.join(self.values)}")
        return self


class Impossible(BaseModel):
    """Claims that cannot hold, or not together, and under which readings; `proof`: a bound, or the search."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    figures: list[str] = Field(min_length=1)
    text: str
    proof: Literal["bound", "search"]


class Reading(BaseModel):
    """A reading file: all choices of a paper.

    Attributes
    ----------
    base
        The shipped scenario, with what the paper prints for all figures.
    choices
        In the order of the text.
    printed
        What the paper prints for some figures alone.
    impossible
        What cannot hold.
    budget
        Most selections that the search for the joint reading tries.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    paper: str
    base: str
    budget: int = Field(150, ge=1)
    choices: list[OpenChoice] = []
    printed: list[PrintedSetting] = []
    impossible: list[Impossible] = []

    @model_validator(mode="after")
    def _has_no_choice_twice(self) -> Reading:
        names = [choice.name for choice in self.choices]
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise ValueError(f"{self.paper}: the choice {twice[0]!r} is there twice")
        return self

    def selection(self, reading: str) -> dict[str, str]:
        """The values of the plain or of the joint reading."""
        return {choice.name: getattr(choice, reading) for choice in self.choices}

    def settings_of(self, figure: str, selection: Selection) -> Iterator[Setting]:
        """What holds for a figure under a selection; a later entry overrides an earlier one.

        Raises
        ------
        InputError
            If the selection names a choice or a value that is not there, or lacks one.
        """
        self._check(selection)
        yield from (printed for printed in self.printed if figure in printed.figures)
        for choice in self.choices:
            if not choice.figures or figure in choice.figures:
                yield choice.values[selection[choice.name]]

    def _check(self, selection: Selection) -> None:
        names = {choice.name for choice in self.choices}
        for name in selection:
            if name not in names:
                raise InputError(f"the reading of {self.paper} has no choice {name!r}{did_you_mean(name, names)}")
        for choice in self.choices:
            if (value := selection.get(choice.name)) not in choice.values:
                raise InputError(
                    f"{self.paper}: the choice {choice.name} is {value!r}; the text allows {', '.join(choice.values)}"
                )

    def apply(self, study: dict[str, Any], selection: Selection) -> dict[str, Any]:
        """The content of a study file under a selection: with its scenario, and the parameters of its policies.

        The reading's `settings` override the file's; fields of the scenario that a file sets itself, as one of our own
        figures may, stay. What trains has servers and jobs of its own: of a reading it takes parameters of policies.
        """
        settings, parameters = dict(study["settings"]), dict[str, dict[str, Any]]()
        fields = dict[str, Any]()
        for setting in self.settings_of(study["figure"], selection):
            fields |= setting.set
            settings |= setting.settings.get(study["figure"], {})
            for policy, values in setting.policies.items():
                parameters[policy] = parameters.get(policy, {}) | values
        if settings["kind"] in _SIMULATED:
            settings = {"base": self.base} | settings | {"set": fields | settings.get("set", {})}
        return {**study, "settings": settings, "parameters": parameters}


def with_parameters(policy: str, parameters: Mapping[str, Mapping[str, Any]]) -> str:
    """The policy ``name:key=value,...`` with the parameters of its name; those that it has already stay."""
    name, _, options = policy.partition(":")
    own = [part for part in options.split(",") if part]
    keys = {part.partition("=")[0].strip() for part in own}
    added = [f"{key}={_text(value)}" for key, value in parameters.get(name, {}).items() if key not in keys]
    return ":".join([name, *([",".join([*added, *own])] if added or own else [])])


def _text(value: object) -> str:
    """A parameter's value as a policy's name has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_reading(path: Path) -> Reading:
    """Read a reading file."""
    return Reading.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))


@cache
def all_readings() -> dict[str, Reading]:
    """The reading of each paper that has one, by its name."""
    folder = Path(str(importlib.resources.files(__package__))) / "readings"
    return {reading.paper: reading for reading in map(read_reading, sorted(folder.glob("*.toml")))}


def reading_of(paper: str) -> Reading:
    """The reading of a paper.

    Raises
    ------
    InputError
        If there is none; says which papers have one.
    """
    readings = all_readings()
    if paper not in readings:
        raise InputError(f"{paper!r} has no reading; {', '.join(readings)} have one")
    return readings[paper]
