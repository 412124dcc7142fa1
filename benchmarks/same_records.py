"""Whether the records of all policies are still what they were: a digest of every table, and the first difference.

    python benchmarks/same_records.py [--scenarios demo,s1] [--policies "aonline;srtf"] [--out FILE] [--against FILE]
                                      [--random 200]

Every policy of the registry, and the variants in `VARIANTS`, runs on every shipped scenario that it fits, cut to the
sizes in `SIZES`. Printed: a digest of each scenario's jobs, and one per scenario, policy and table. `--out` keeps the
digests with the tables (compressed CSV, about 20 MB in all); `--against` compares with such a file, lists the tables
that differ and exits 1, naming the first table, row and column. An error in place of a record is kept as a record.
`--random` adds small scenarios whose cluster, physics and jobs are drawn: clouds, failures, restores, tenants, slots.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import sys
import zlib
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml

from skedge.core.errors import SkedgeError
from skedge.core.model.scenario import Scenario
from skedge.core.registry import make_policy, registered
from skedge.prepare import offers
from skedge.scenario.file import scenario_from_dict, shipped
from skedge.simulate import run

SIZES: dict[str, dict[str, Any]] = {
    "demo": {},
    "live-demo": {},
    "s1": {"cluster": {"draw": {"servers": 20}}, "workload": {"synthetic": {"jobs": 150, "span": "30h"}}},
    "s2": {"cluster": {"draw": {"servers": 20}}, "workload": {"synthetic": {"jobs": 100, "span": "30h"}}},
    "s3": {"cluster": {"draw": {"servers": 20}}, "workload": {"synthetic": {"jobs": 60, "span": "30h"}}},
    "s4": {"cluster": {"draw": {"servers": 12}}, "workload": {"synthetic": {"jobs": 24}}},
}
"""Changes to the shipped files: fewer servers under more load; all runs together take about a minute of CPU."""

VARIANTS = (
    "aonline:cloud=false",
    "aonline:q_mode=eq5",
    "aonline:q_mode=fractional",
    "aonline:preempt_running=false",
    "aonline:ps_choice=random",
    "batch:price_norm=none,T=20",
    "batch:literal_cost_d=true,order=shortest,T=5",
    "batch:cloud_capacity=2,strict_upload=false",
    "batchsche:tie=earliest,cloud_capacity=0",
    "batch:tie=printed,cloud_capacity=3",
    "batchsche:tie=printed,upload=where_placed",
    "drf:counts=fixed",
    "srtf:allow_cloud=true",
    "srtf:sticky=true",
    "srtf:placement=literal",
    "tiresias:knob=2",
    "tiresias:limit_s=100,knob=1",
    "tiresias:placement=literal",
    "fifo:backfill=true",
    "fifo:rule=earliest_server",
    "pdors:completion=index,levels=7",
    "pdors:cover_soft=true,tries=2",
    "pdors:repair=false,tries=2",
    "pdors:gain=eq30,relaxation=highs,levels=5",
    "pdors:theta=exact,levels=3",
    "oasis:completion=index,levels=200",
    "optimus:speed=fitted,servers=free",
    "okita:alpha1=0.2,conflict=cheaper,late_last=true,release=latest",
    "okita:fit=true",
    "okita:colocate=true,normalise=true",
)
"""Variants that decide by other code than the default."""


def random_content(number: int) -> dict[str, Any]:
    """The content of a scenario file in which everything is drawn by `number`."""
    rng = np.random.default_rng(number)

    def one(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    physics = {
        "slotted": one(False, True),
        "data": one("kept", "kept", "last_place"),
        "colocation": one("cloud", "one_server"),
        "checkpoint_overhead": one("0s", "10s", "3min"),
        "estimate_error": one(0.0, 0.0, 0.4),
        **one({}, {}, {"mtbf": "3h", "mttr": "20min"}),
    }
    draw = {"load": one(0.5, 0.9, 1.5), "machines": "philly-like", "worker_types": one(1, 2, 3), "ps_types": one(1, 2)}
    workload: dict[str, Any] = {"synthetic": {"jobs": int(rng.integers(10, 60)), "span": one("3h", "12h", "1d")}}
    workload["make"] = one("rigid", "divisible")
    cluster: dict[str, Any] = {"draw": draw | {"cloud": one(False, True)}}
    return {"name": f"random{number}", "seed": number, "cluster": cluster, "workload": workload, "physics": physics}


def scenario(name: str) -> Scenario:
    """The shipped scenario at the size in `SIZES`, or a random one."""
    if name.startswith("random"):
        return scenario_from_dict(random_content(int(name.removeprefix("random"))), name, Path())
    content = yaml.safe_load(shipped(name).read_text(encoding="utf-8"))
    return scenario_from_dict(_merged(content, SIZES[name]), name, Path())


def _merged(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    deeper = {key: _merged(content[key], value) for key, value in changes.items() if isinstance(value, dict)}
    return content | changes | deeper


def specs(asked: str | None) -> list[str]:
    """Default and variants of all registered policies, or those asked for."""
    return asked.split(";") if asked else sorted([*registered(), *VARIANTS])


def kept(table: pl.DataFrame) -> dict[str, str]:
    """Digest and compressed CSV of a table."""
    text = table.write_csv().encode()
    return {
        "digest": hashlib.sha256(text).hexdigest()[:16],
        "csv": base64.b64encode(zlib.compress(text, 9)).decode(),
    }


def tables(of: Scenario, policy: str) -> dict[str, dict[str, str]]:
    """Every table of the run, kept; an error in the place of the tables where there is one."""
    try:
        result = run(of, policy)
    except SkedgeError as error:
        return {"error": kept(pl.DataFrame({"message": [str(error)]}))}
    return {name: kept(table) for name, table in result.schedule.tables().items()}


def records(names: list[str], policies: list[str]) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    """("scenario policy", tables) of every pair that fits."""
    for name in names:
        try:
            of = scenario(name)
        except SkedgeError as error:  # what is drawn need not fit together
            yield f"{name} (scenario)", {"error": kept(pl.DataFrame({"message": [str(error)]}))}
            continue
        yield f"{name} (scenario)", {"jobs": kept(_flat(of.jobs.frame))}
        for policy in policies:
            if make_policy(policy).needs <= offers(of):
                yield f"{name} {policy}", tables(of, policy)


def _flat(table: pl.DataFrame) -> pl.DataFrame:
    """Nested columns as texts, which CSV needs."""
    nested = [name for name, kind in table.schema.items() if kind.is_nested() or kind == pl.Object]
    return table.with_columns(*(pl.Series(name, [repr(value) for value in table[name]]) for name in nested))


def frame(entry: dict[str, str]) -> pl.DataFrame:
    """The table as texts."""
    text = zlib.decompress(base64.b64decode(entry["csv"])).decode()
    return pl.read_csv(StringIO(text), infer_schema=False)


def first_difference(before: dict[str, str], now: dict[str, str]) -> str:
    """Row and column of the first cell that differs, with both values."""
    old, new = frame(before), frame(now)
    if old.columns != new.columns:
        return f"columns were {', '.join(old.columns)} and are {', '.join(new.columns)}"
    for row, (one, other) in enumerate(zip(old.rows(), new.rows(), strict=False)):
        for column, was, is_ in zip(old.columns, one, other, strict=True):
            if was != is_:
                return f"row {row}, column {column}: was {was}, is {is_}"
    return f"it had {old.height} rows and has {new.height}"


def differences(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    """A line for every table that differs."""
    for key in sorted(before.keys() | now.keys()):
        old, new = before.get(key), now.get(key)
        if old is None or new is None:
            yield f"{key}: there is no such run {'before' if old is None else 'now'}"
            continue
        for table in sorted(old.keys() | new.keys()):
            if table not in old or table not in new:
                yield f"{key}, table {table}: only {'now' if table not in old else 'before'}"
            elif old[table]["digest"] != new[table]["digest"]:
                yield f"{key}, table {table}, {first_difference(old[table], new[table])}"


def main() -> int:
    """Run, print the digests, keep or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenarios", default=",".join(SIZES))
    parser.add_argument("--policies", help="separated by semicolons; default: all")
    parser.add_argument("--out", type=Path, help="where digests and tables are kept")
    parser.add_argument("--against", type=Path, help="an earlier --out")
    parser.add_argument("--random", type=int, default=0, help="number of random scenarios beside them")
    asked = parser.parse_args()
    asked.scenarios += "".join(f",random{number}" for number in range(asked.random))
    now = {}
    for key, found in records(asked.scenarios.split(","), specs(asked.policies)):
        now[key] = found
        print(key, " ".join(f"{table}={entry['digest']}" for table, entry in found.items()), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps(now, indent=1), encoding="utf-8")
    if not asked.against:
        return 0
    before = json.loads(asked.against.read_text(encoding="utf-8"))
    found = list(differences(_of_these(before, asked, now), now))
    for line in found:
        print(line)
    print(f"{len(found)} of {sum(map(len, now.values()))} tables differ" + (f"; first: {found[0]}" if found else ""))
    return int(bool(found))


def _of_these(before: dict[str, Any], asked: argparse.Namespace, now: dict[str, Any]) -> dict[str, Any]:
    """What was kept of the runs asked for; all of it where all were asked for."""
    if asked.policies:
        return {key: before[key] for key in now if key in before}
    return {key: value for key, value in before.items() if key.split()[0] in asked.scenarios.split(",")}


if __name__ == "__main__":
    sys.exit(main())
