"""Every rule on servers with resources finds what breaks it, and nothing else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders.verify_resources import (
    ANY,
    PLANTED,
    Planted,
    done,
    edit,
)


@pytest.mark.parametrize("policy", ["pdors", "oasis"])
def test_a_true_record_keeps_all_rules(policy: str) -> None:
    assert done(policy).verify() == []


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: f"{planted.rule} {planted.what}")
def test_what_is_planted_is_found(planted: Planted) -> None:
    doctored = replace(done(), schedule=planted.change(done().schedule))
    assert planted.rule in {violation.rule for violation in doctored.verify()}


def test_without_what_prices_begin_with_the_rules_on_prices_are_not_checked() -> None:
    """A stranger's record of prices says nothing of L and U."""
    meta = {key: value for key, value in done().meta.items() if key != "params"} | {"policy": "stranger"}
    doctored = replace(done(), meta=meta, schedule=edit("prices", ANY, price=1e9)(done().schedule))
    assert doctored.verify() == []
