"""The file with a controller's address: a disk that is full for a while costs time, not the controller."""

from __future__ import annotations

import json
from pathlib import Path

from simulated import host
from simulated.disks import disk
from simulated.scheduler import World
from skedge.live import host as seam
from skedge.live.controller.address import Address
from skedge.live.controller.settings import ADDRESS
from skedge.live.durable import make_folder, read_text

STATE = Path("/state")


def test_the_address_is_written_once_the_disk_has_space_and_not_after_the_end() -> None:
    def program() -> None:
        make_folder(STATE)
        disk("machine").suffer("full", 5.0)
        address = Address(STATE, {"pid": 7})
        address.tell(is_ready=False)
        address.tell(is_ready=True)
        assert not seam.disk.exists(STATE / ADDRESS)
        host.sleep(7.0)
        assert json.loads(read_text(STATE / ADDRESS)) == {"pid": 7, "ready": True}
        disk("machine").suffer("full", 5.0)
        address.tell(is_ready=False)
        address.remove()
        host.sleep(7.0)
        assert not seam.disk.exists(STATE / ADDRESS)

    for seed in range(10):
        with seam.installed(host), World(seed) as world:
            world.process("controller", program)
            world.run()
        for crash in world.crashes:
            raise crash.error
