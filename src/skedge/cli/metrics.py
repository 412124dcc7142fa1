"""``skedge metrics``: the metrics of a run."""

from __future__ import annotations

from skedge.large import opened
from skedge.run import named

from .console import metrics_table, out, print_json
from .options import JsonOption, RunArgument
from .progress import PartProgress, progress


def metrics(folder: RunArgument, as_json: JsonOption = False) -> None:
    """Print the metrics of a run."""
    with progress(quiet=as_json) as bar:
        result = opened(folder, PartProgress(bar))
        with named(folder):
            result.check_complete()
        numbers = result.metrics
    if as_json:
        print_json(numbers)
    else:
        out.print(metrics_table(numbers, str(result.meta["policy"])))
