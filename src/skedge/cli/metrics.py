"""``skedge metrics``: the metrics of a run."""

from __future__ import annotations

from skedge.run import load_whole

from .console import metrics_table, out, print_json
from .options import JsonOption, RunArgument


def metrics(folder: RunArgument, as_json: JsonOption = False) -> None:
    """Print the metrics of a run."""
    result = load_whole(folder)
    if as_json:
        print_json(result.metrics)
    else:
        out.print(metrics_table(result.metrics, result.policy))
