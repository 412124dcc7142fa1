"""``skedge metrics``: the metrics of a run."""

from __future__ import annotations

from dataclasses import replace

from skedge.recorded_run import Run, naming_folder

from .console import out, print_json
from .metrics_table import metrics_table
from .options import JsonOption, RunArgument
from .progress import PartProgress, progress


def metrics(folder: RunArgument, as_json: JsonOption = False) -> None:
    """Print the metrics of a run."""
    with progress(quiet=as_json) as bar:
        result = replace(Run.load(folder), steps=PartProgress(bar))
        with naming_folder(folder):
            result.check_complete()
        numbers = result.metrics
    if as_json:
        print_json(numbers)
    else:
        out.print(metrics_table(numbers, str(result.meta["policy"])))
