"""Read a table of jobs by a mapping, of many rows: time and peak memory.

    python benchmarks/trace.py [--rows 10000000]

The table is made in a temporary folder, with times as dates, states, users, jobs without GPUs, and columns that are not
used. Printed: size of the file, CPU time and peak memory of reading it, and what was left out.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from skedge.traces.formats import shipped_mapping
from skedge.traces.readers.mapped import read_mapped


def table(rows: int) -> pl.DataFrame:
    """Jobs in the form of Helios."""
    rng = np.random.default_rng(0)
    begin = pl.datetime(2020, 4, 1).dt.offset_by(pl.format("{}s", pl.col("second")))
    return pl.DataFrame({"job_id": np.arange(rows), "second": np.sort(rng.integers(0, 15_000_000, rows))}).select(
        "job_id",
        user=pl.Series(rng.integers(0, 500, rows)),
        vc=pl.Series(rng.integers(0, 40, rows)),
        gpu_num=pl.Series(rng.choice([0, 1, 2, 4, 8], rows)),
        state=pl.Series(rng.choice(["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"], rows)),
        submit_time=begin.dt.strftime("%Y-%m-%d %H:%M:%S"),
        duration=pl.Series(rng.integers(0, 100_000, rows)),
        queue=pl.Series(rng.integers(0, 100_000, rows)),
    )


def main() -> None:
    """Make the table, read it, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cluster_log.csv"
        for part in range(0, rows, 1_000_000):
            with path.open("ab") as file:
                some = table(min(1_000_000, rows - part)).with_columns(pl.col("job_id") + part)
                some.write_csv(file, include_header=part == 0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        began = time.process_time()
        trace = read_mapped(path, shipped_mapping("helios"), ("passed", "failed", "killed"))
        took = time.process_time() - began
        size = path.stat().st_size / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{rows:,} rows, {size:,.0f} MB: {took:.1f} s of CPU, peak memory {peak:.1f} GB ({before:.1f} before)")
    print(f"{len(trace.frame):,} jobs; left out: {trace.skipped}")


if __name__ == "__main__":
    main()
