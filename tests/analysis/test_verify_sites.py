"""Every rule on sites finds what breaks it, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import polars as pl
import pytest

from builders.verify_resources import Planted
from builders.verify_sites import MOVED, PLANTED, SLOT
from skedge.recorded_run import Run
from skedge.simulate import run
from skedge.testing import site_scenario


@cache
def done() -> Run:
    return run(site_scenario(1, jobs=40), "okita")


def test_the_run_that_is_broken_below_keeps_every_rule() -> None:
    assert done().verify() == []
    assert done().schedule.uploads["from_site"].is_not_null().any(), "data have moved"
    assert done().schedule.runs["preempted"].any(), "a job was delayed after it had begun, or moved"


@pytest.mark.parametrize("planted", PLANTED, ids=lambda p: f"{p.rule}-{p.what}")
def test_what_breaks_a_rule_is_found(planted: Planted) -> None:
    run_ = done()
    broken = replace(run_, schedule=planted.change(run_.schedule))
    assert planted.rule in {violation.rule for violation in broken.verify()}


def test_transfers_of_a_job_between_the_right_sites_are_recorded_in_their_order() -> None:
    moved = done().schedule.uploads.filter(MOVED)
    assert (moved["start"] == moved["end"]).all(), "at once"
    assert (moved["start"] % SLOT == 0).all()
    assert (moved["from_site"] != moved["to_server"].cast(pl.String)).all()
