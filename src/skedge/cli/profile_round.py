"""``skedge profile --round``: the time of a round by stage, beside plain PyTorch and DDP, as tables and a picture."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.table import Column

from skedge.core.errors import InputError
from skedge.report.palette import COLOURS
from skedge.report.pictures import can_draw
from skedge.report.plots import Plot
from skedge.report.write import write_report

from .console import out, print_json, print_table
from .progress import progress

if TYPE_CHECKING:
    from skedge.live.cluster.round_profile import RoundProfile
    from skedge.live.worker.program import Program

SIZES, WORKERS, ROUNDS = "0.1M,1M,20M", "1,2,4", 50
"""What is measured without other options."""

_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kM]?)")
_FACTORS = {"": 1, "k": 1_000, "M": 1_000_000}
_FEWEST, _MOST, _MOST_WORKERS = 1_000, 200_000_000, 64

_MINIBATCHES, _SAMPLES = 8, 32
"""Mini-batches of a chunk of the shipped model, and samples of each."""

_HUES = (*COLOURS, "#e69f00", "#f0e442", "#56b4e9", "#cc79a7")
_BASELINES = {"plain PyTorch": "#bbbbbb", "DDP over gloo": "#111111"}


def sizes_of(text: str) -> dict[str, int]:
    """Numbers of parameters by their names, from ``0.1M,20k``.

    Raises
    ------
    InputError
        If one of them is no number, or is too small or too large.
    """
    sizes = {}
    for word in text.split(","):
        parts = _SIZE.fullmatch(word.strip())
        number = round(float(parts[1]) * _FACTORS[parts[2]]) if parts else 0
        if not _FEWEST <= number <= _MOST:
            raise InputError(f"--parameters: {word.strip()!r}; write numbers from 1k to 200M, as {SIZES}")
        sizes[word.strip()] = number
    return sizes


def workers_of(text: str) -> list[int]:
    """Numbers of workers, from ``1,2``.

    Raises
    ------
    InputError
        If one of them is no number from 1 to 64.
    """
    numbers = []
    for word in text.split(","):
        number = int(word) if word.strip().isascii() and word.strip().isdigit() else 0
        if not 1 <= number <= _MOST_WORKERS:
            raise InputError(f"--workers: {word.strip()!r}; write numbers from 1 to {_MOST_WORKERS}, as {WORKERS}")
        numbers.append(number)
    return numbers


def shipped_programs(sizes: Mapping[str, int]) -> dict[str, Program]:
    """A program with a multilayer perceptron of each size."""
    from skedge.live.worker.program import Program  # noqa: PLC0415 - imports the extra

    samples = _MINIBATCHES * _SAMPLES
    return {
        name: Program("skedge.live.examples:mlp", {"parameters": n, "samples": samples}, 1, 1, _MINIBATCHES)
        for name, n in sizes.items()
    }


def check_folder(folder: Path | None) -> None:
    """Fail before measuring if the picture cannot be written.

    Raises
    ------
    InputError
        If the folder cannot be made, or without the extra `figures`.
    """
    if folder is None:
        return
    if not can_draw():
        raise InputError("--out: a picture needs the extra `figures`: pip install 'skedge[figures]'")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error


def profile_round(
    programs: Mapping[str, Program], workers: Sequence[int], rounds: int, folder: Path | None, *, as_json: bool
) -> None:
    """Measure rounds, print them, and write ``round.svg`` and ``round.json`` into a folder.

    Parameters
    ----------
    programs
        What is trained, by name.
    workers, rounds
        Numbers of workers, and number of rounds measured with each.
    folder
        A folder that is there; None: nothing is written.
    as_json
        Print JSON.
    """
    from skedge.live.cluster.round_profile import profile_rounds  # noqa: PLC0415 - imports the extra

    with tempfile.TemporaryDirectory(prefix="skedge-profile-") as state, progress(quiet=as_json) as bar:
        task = bar.add_task("profile", total=2 * len(programs) * len(workers), at="")
        profiles = profile_rounds(programs, workers, rounds, Path(state), lambda at: bar.update(task, advance=1, at=at))
    answer = {"rounds": rows(profiles), "out": None if folder is None else str(folder)}
    if folder is not None:
        write_report(folder / "round.svg", picture(profiles).svg())
        write_report(folder / "round.json", json.dumps(answer["rounds"], indent=1) + "\n")
    if as_json:
        print_json(answer)
        return
    for name in dict.fromkeys(profile.model for profile in profiles):
        _show([profile for profile in profiles if profile.model == name])
    out.print("stages: means of the middle half of the rounds, of checkpoints of all; round: median; all in ms")
    out.print("+PS: on the server of the parameter server, the first of them in its process")
    if folder is not None:
        out.print(f"written to {folder}: round.svg, round.json", soft_wrap=True)


def rows(profiles: Sequence[RoundProfile]) -> list[dict[str, Any]]:
    """All measured and derived numbers; one row per model and number of workers."""
    return [
        {
            **asdict(profile),
            "sum_s": profile.sum_s,
            "samples_per_s": profile.samples_per_s,
            "over_plain": profile.over_plain,
            "over_ddp": profile.over_ddp,
        }
        for profile in profiles
    ]


def _show(profiles: Sequence[RoundProfile]) -> None:
    """Print the table of one model: a row per stage, a column per number of workers."""
    first = profiles[0]
    titles = [f"{first.parameters:,} parameters, workers:", *map(_titled, profiles)]
    lines = [(stage, [_ms(profile.stage_s[stage]) for profile in profiles]) for stage in first.stage_s]
    lines += [
        ("sum", [_ms(profile.sum_s) for profile in profiles]),
        ("round", [_ms(profile.round_s) for profile in profiles]),
        ("samples/s", [f"{profile.samples_per_s:.0f}" for profile in profiles]),
        ("round in plain PyTorch", [_ms(profile.plain_s) for profile in profiles]),
        ("  skedge takes", [f"{profile.over_plain:.1f} x" for profile in profiles]),
        ("round in DDP over gloo", [_ms(profile.ddp_s) for profile in profiles]),
        ("  skedge takes", ["–" if profile.over_ddp is None else f"{profile.over_ddp:.1f} x" for profile in profiles]),
    ]
    columns = [Column(titles[0]), *(Column(title, justify="right", no_wrap=True) for title in titles[1:])]
    print_table(columns, [(name, *cells) for name, cells in lines], box=SIMPLE_HEAD, pad_edge=False)


def _titled(profile: RoundProfile) -> str:
    return f"{profile.workers}{'+PS' if profile.colocated else ''}"


def _ms(seconds: float | None) -> str:
    return "–" if seconds is None else f"{1e3 * seconds:.1f}"


def picture(profiles: Sequence[RoundProfile]) -> Plot:
    """Stacked bars of the stages by number of workers, beside plain PyTorch and DDP; a panel for each model."""
    stages = list(profiles[0].stage_s)
    bars = [bar for profile in profiles for bar in _bars(profile, stages)]
    names, hues = [*stages, *_BASELINES], [*_HUES, *_BASELINES.values()]
    panels = [
        {
            "title": f"{model} parameters",
            "width": 180,
            "height": 320,
            "transform": [{"filter": {"field": "model", "equal": model}}],
            "mark": {"type": "bar", "tooltip": True},
            "encoding": {
                "x": {"field": "workers", "type": "ordinal", "title": "workers", "axis": {"labelAngle": 0}},
                "xOffset": {"field": "system", "type": "nominal", "sort": ["skedge", *_BASELINES]},
                "y": {"field": "ms", "type": "quantitative", "stack": True, "title": "a round [ms]"},
                "color": {
                    "field": "stage",
                    "type": "nominal",
                    "title": None,
                    "scale": {"domain": names, "range": hues},
                },
                "order": {"field": "order", "type": "quantitative"},
            },
        }
        for model in dict.fromkeys(profile.model for profile in profiles)
    ]
    return Plot(
        {
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "title": {"text": "A round by stage", "anchor": "start"},
            "background": "white",
            "data": {"values": bars},
            "hconcat": panels,
        }
    )


def _bars(profile: RoundProfile, stages: Sequence[str]) -> list[dict[str, Any]]:
    place = {"model": profile.model, "workers": f"{profile.workers}" + (" with PS" if profile.colocated else "")}
    bars = [
        {**place, "system": "skedge", "stage": stage, "ms": 1e3 * profile.stage_s[stage], "order": order}
        for order, stage in enumerate(stages)
    ]
    for name, seconds in zip(_BASELINES, (profile.plain_s, profile.ddp_s), strict=True):
        if seconds is not None:
            bars.append({**place, "system": name, "stage": name, "ms": 1e3 * seconds, "order": 0})
    return bars
