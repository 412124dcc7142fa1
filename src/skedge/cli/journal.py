"""``skedge journal``: check the journal of a service, and repair it."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from skedge.live.service.audit import AUDIT, Audit

from .console import print_answer
from .extra import check_live
from .lazy import command_group
from .options import STATE, JsonOption
from .state_lock import local_user, lock_stopped

if TYPE_CHECKING:
    from skedge.live.service.journal_repair import JournalCheck

journal = command_group("Check the journal of a service, and repair it.")

StateArgument = Annotated[Path, typer.Argument(help="Folder of the service's state.")]


@journal.command()
def check(state: StateArgument = STATE, as_json: JsonOption = False) -> None:
    """Name the first entry that is damaged or missing; the service may be up. Exit status 1 if there is one."""
    check_live()
    from skedge.live.service import journal_repair  # noqa: PLC0415 - imports the extra

    result = journal_repair.check(state)
    print_answer(asdict(result), _check_sentence(state, result), as_json=as_json)
    if result.first_bad is not None:
        raise typer.Exit(1)


def _check_sentence(state: Path, result: JournalCheck) -> str:
    """The result of a check, in a sentence."""
    if result.first_bad is None:
        return f"{state}: all {result.entries} entries of the journal are sound"
    bad = f"{state}: entry {result.first_bad} of {result.entries} {result.why}"
    if result.starts:
        return (
            f"{bad}; the service continues from its snapshot, before entry {result.from_snapshot}, and needs none "
            "before it; a record, or a later version of skedge, does: restore the file of the archive from a backup"
        )
    return f"{bad}; `skedge journal repair {state}` cuts the journal before it, or restore a backup"


@journal.command()
def repair(state: StateArgument = STATE, as_json: JsonOption = False) -> None:
    """Cut the journal to its last sound entry, and say what that loses; the service must be down."""
    check_live()
    from skedge.live.service import journal_repair  # noqa: PLC0415 - imports the extra

    # a running service would write behind the cut
    lock = lock_stopped(state)
    try:
        cut = journal_repair.repair(state)
        Audit(state / AUDIT, local_user).note("journal repair", {}, cut.why or "nothing to cut")
    finally:
        os.close(lock)
    if cut.first_bad is None:
        sentence = f"{state}: every entry that the service needs is sound; nothing was cut"
    else:
        jobs = f", with the submissions of {', '.join(cut.jobs)}" if cut.jobs else ""
        sentence = (
            f"{state}: entry {cut.first_bad} {cut.why}: {cut.lost} entries are cut off{jobs}, all that was decided or "
            f"reported after {cut.until_s:.3f} s of the service's clock; jobs that are left continue from their "
            f"checkpoints with `skedge up`, and what was cut off is in {cut.aside}"
        )
    print_answer(asdict(cut), sentence, as_json=as_json)
