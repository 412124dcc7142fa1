"""``skedge metrics``: the metrics of a run."""

from __future__ import annotations

from skedge.large import opened
from skedge.run import named

from .console import metrics_table, out, print_json
from .options import JsonOption, RunArgument


def metrics(folder: RunArgument, as_json: JsonOption = False) -> None:
    """Print the metrics of a run."""
    result = opened(folder)
    with named(folder):
        result.must_be_whole()
    if as_json:
        print_json(result.metrics)
    else:
        out.print(metrics_table(result.metrics, str(result.meta["policy"])))
