"""Do harm to a service at random instants, and see that no job is silently wrong.

    python benchmarks/faults.py --count 50 --seed 0 --kind agent,ps,raylet,controller
    python benchmarks/faults.py --count 25 --seed 0 --kind checkpoint,disk,clock,poison
    python benchmarks/faults.py --count 10 --seed 0 --kind freeze,cut,torn,journal,hung,controller+freeze,cut+agent

A service is brought up in a temporary folder and given small jobs, so that some are always in the system. At seeded
random instants it suffers a fault; the next one comes when it is whole again:

agent, ps, coordinator, raylet, head, host, controller
    One such process is ended with SIGKILL. `coordinator` hosts the trainers, `head` is Ray's own (its GCS), `host` has
    the embedded cluster, `controller` is the service's process.
checkpoint
    The newest checkpoint of a job, or all of them, are deleted, cut short or changed, and all parameter servers killed.
disk
    The disk of the state is filled to the last byte for some seconds. The state then lies on a small tmpfs: needs root.
freeze
    A process of one of these kinds is stopped (SIGSTOP) for up to half a minute.
cut
    No message passes between the service's processes for some seconds: they are in a network namespace of their own,
    whose loopback device is down. Needs root.
torn
    All processes are ended at once; half-written files and a torn end of the journal's log are left; it is brought up
    again, as after a power cut.
journal
    All processes are ended, and a byte of the journal is changed: ``skedge journal check`` must name the entry, or the
    content be as it was. The journal is put back, and the service brought up again.
clock
    The controller is killed, and the next one finds the clock up to a day ahead of the last one's or behind it.
poison
    A job is submitted that no service should take, or whose code ends its process, raises, or gives no number.
hung
    A job is submitted whose mini-batch never ends.
A+B
    Both at once, up to a second apart.

At the end every job must be COMPLETED, with all epochs of every chunk in its last checkpoint, or FAILED with its
sentence; without poison and lost checkpoints none may be FAILED. Every decision is taken again from the journal and
compared (``skedge record``). One line per kind; exit status 1 if anything else was found.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx

CLUSTER = """
name: faults
slot: 1s
cluster:
  servers:
    - {id: edge-0, workers: {gpu: 2}, ps: {cpu: 1}}
    - {id: edge-1, workers: {gpu: 2}, ps: {cpu: 1}}
    - {id: far, kind: cloud}
"""
EPOCHS, CHUNKS, MINIBATCHES = 5, 2, 6
JOB = {
    "name": "job", "epochs": EPOCHS, "chunks": CHUNKS, "minibatches": MINIBATCHES, "minibatch_s": 0.1,
    "ps_update_s": 0.01, "gradient_mb": 0.05, "bandwidth_mbps": 100.0, "upload_edge_s": [0.2, 0.4],
    "upload_cloud_s": [60, 60], "resources": {"workers": 2},
    "train": {
        "factory": "skedge.live.examples:images",
        "args": {"model": "lenet", "chunks": CHUNKS, "samples": 120, "size": 8},
    },
}  # fmt: skip
POISONS: dict[str, dict[str, Any]] = {
    "many chunks": {"chunks": 90_000_000},
    "no number": {"minibatch_s": float("nan")},
    "half a pair": {"train": {"factory": "skedge.live.examples:images", "args": {"model": "\ud800"}}},
    "a path": {"name": "../../etc"},
    "big args": {"train": {"factory": "skedge.live.examples:images", "args": {"model": "x" * 2_000_000}}},
    "not allowed": {"train": {"factory": "os:system", "args": {"command": "true"}}},
    "ends its process": {"train": {"factory": "poison:ends_its_process"}},
    "raises": {"train": {"factory": "poison:raises"}},
    "gives no number": {"train": {**JOB["train"], "factory": "poison:no_number"}},  # type: ignore[dict-item]
}
"""Poisonous jobs: what is other in them than in a good one."""

HUNG = {"train": {**JOB["train"], "factory": "poison:hangs"}}  # type: ignore[dict-item]
"""What is other in a job that never comes to the end of a mini-batch."""

IN_SYSTEM = 3
"""Jobs that are kept in the system."""

TITLES = {
    "agent": "ray::Agent", "ps": "ray::PSActor", "coordinator": "ray::Coordinator", "raylet": "raylet/raylet", "head":
    "gcs_server", "host": "skedge.live.service.ray_host",
}  # fmt: skip
WHOLE_S = 180.0
DISK_MB = 300
IP = "/usr/sbin/ip"
DAY_S = 86400.0
FREEZE_S, CUT_S = (0.5, 30.0), (0.5, 8.0)
"""For how long a process is stopped, and the network is down [s]."""

STALL_S = 5.0
"""Time after which a mini-batch is stalled [s]."""


POISON = """
import os
import time
from dataclasses import replace

from skedge.live.examples import images


def ends_its_process(**given):
    os._exit(3)


def raises(**given):
    raise FileNotFoundError("no data here")


def no_number(**given):
    return replace(images(**given), loss=lambda outputs, targets: outputs.sum() * float("nan"))


def hangs(**given):
    return replace(images(**given), loss=lambda outputs, targets: time.sleep(1e6))
"""
"""Factories of poisonous jobs."""

SHIFTED = """
import os
import time

real = time.time


def shifted():
    try:
        with open(os.environ["FAULTS_CLOCK"]) as file:  # jobs' processes do not have it
            return real() + float(file.read())
    except (KeyError, OSError, ValueError):
        return real()


time.time = shifted
"""
"""`sitecustomize` of the service's processes: their clock is the machine's and what a file says."""

Fault = Callable[["Client", random.Random], str]
"""Does harm and waits until it is over; what was done."""


@dataclass
class Campaign:
    """What was done of one kind."""

    kind: str
    done: list[str] = field(default_factory=list)
    recovery_s: list[float] = field(default_factory=list)


class Client:
    """The service, asked over its API; its address is read anew each time: a controller that died has another one."""

    def __init__(self, state: Path, network: str = "") -> None:
        self.state, self.network = state, network
        self.up: Callable[[], object] = lambda: None

    @property
    def in_network(self) -> list[str]:
        """What runs a command in the network of the service."""
        return [IP, "netns", "exec", self.network] if self.network else []

    @property
    def clock(self) -> Path:
        """What the service's clock is ahead of the machine's [s]."""
        return self.state.parent / "clock"

    def ask(self, method: str, path: str, **given: Any) -> Any:
        """The answer to a request."""
        with self.connected() as client:
            answer = client.request(method, path, **given)
        answer.raise_for_status()
        return answer.json()

    def controller(self) -> int | None:
        """Its process number; None while there is none."""
        with suppress(OSError, ValueError):
            return int(json.loads((self.state / "service.json").read_text(encoding="utf-8"))["pid"])
        return None

    def connected(self) -> httpx.Client:
        """A connection that stays open, with the token, to the controller that there is now."""
        at = json.loads((self.state / "service.json").read_text(encoding="utf-8"))
        # its socket in the state's folder: the service may be in a network of its own
        way = httpx.HTTPTransport(uds=str(self.state / at["socket"]))
        headers = {"Authorization": f"Bearer {at['token']}"}
        return httpx.Client(base_url=at["url"], headers=headers, timeout=60, transport=way)

    def memory_mb(self) -> float:
        """Memory that the controller holds."""
        lines = Path(f"/proc/{self.controller()}/status").read_text(encoding="utf-8").splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1e3

    def is_whole(self) -> bool:
        """Whether it answers, and every server is up."""
        with suppress(OSError, ValueError, httpx.HTTPError):
            return all(row["state"] == "up" for row in self.ask("GET", "/servers"))
        return False


def skedge(*arguments: str, env: dict[str, str] | None = None, within: Sequence[str] = ()) -> str:
    """Run a command, `within` another one; what it printed."""
    command = [*within, sys.executable, "-m", "skedge", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise SystemExit(f"skedge {' '.join(arguments)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


@contextmanager
def service(policy: str, kind: str) -> Iterator[Client]:
    """A service in a temporary folder, on a small disk and in a network of its own for faults of these."""
    with (
        tempfile.TemporaryDirectory(prefix="skedge-faults-") as folder,
        small_disk(folder, kind),
        own_network(kind) as network,
    ):
        state, cluster = Path(folder) / "state", Path(folder) / "cluster.yaml"
        cluster.write_text(CLUSTER, encoding="utf-8")
        code = Path(folder) / "code"
        code.mkdir()
        (code / "poison.py").write_text(POISON, encoding="utf-8")
        (code / "sitecustomize.py").write_text(SHIFTED, encoding="utf-8")
        client = Client(state, network)
        paths = os.pathsep.join(filter(None, (str(code), os.environ.get("PYTHONPATH"))))
        env = {**os.environ, "PYTHONPATH": paths, "FAULTS_CLOCK": str(client.clock)}
        allowed = [
            "--allow",
            "skedge.live.examples",
            "--allow",
            "poison",
            "--min-free-mb",
            "1",
            "--stall-s",
            str(STALL_S),
            "--readable",
            str(code),
        ]
        client.up = partial(
            skedge, "up", str(cluster), "--state", str(state), "--policy", policy, *allowed, env=env,
            within=client.in_network,
        )  # fmt: skip
        client.up()
        try:
            yield client
        finally:
            if (state / "supervisor.pid").exists():
                skedge("down", "--state", str(state))


@contextmanager
def small_disk(folder: str, kind: str) -> Iterator[None]:
    """For faults of the disk: `folder` on a tmpfs of its own."""
    if "disk" not in kind.split("+"):
        yield
        return
    mounted = subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", folder], check=False)
    if mounted.returncode:
        raise SystemExit("faults of the disk need a small one: mounting a tmpfs is allowed to root alone")
    try:
        yield
    finally:
        subprocess.run(["/bin/umount", "--lazy", folder], check=True)


@contextmanager
def own_network(kind: str) -> Iterator[str]:
    """For faults of the network: the name of one that has a loopback device alone; empty for others."""
    if "cut" not in kind.split("+"):
        yield ""
        return
    name = f"skedge-faults-{os.getpid()}"
    if subprocess.run([IP, "netns", "add", name], check=False).returncode:
        raise SystemExit(
            "faults of the network need one of their own: adding a network namespace is allowed to root alone"
        )
    try:
        subprocess.run([IP, "-n", name, "link", "set", "lo", "up"], check=True)
        yield name
    finally:
        subprocess.run([IP, "netns", "del", name], check=True)


def keep_busy(client: Client) -> None:
    """Submit until as many jobs as wanted are in the system."""
    waiting = [row for row in client.ask("GET", "/jobs") if row["ended_s"] is None]
    for number in range(IN_SYSTEM - len(waiting)):
        # with one worker, a parameter server on its server has it in its process
        client.ask("POST", "/jobs", json={**JOB, "resources": {"workers": 2 - number % 2}})


def processes(client: Client, victim: str) -> list[int]:
    """Processes of this kind that belong to the service, ascending; a raylet is a server's, not the head's."""
    if victim == "controller":
        return [pid] if (pid := client.controller()) is not None else []
    try:
        known = set(json.loads((client.state / "ray.json").read_text(encoding="utf-8"))["processes"])
    except FileNotFoundError:  # the cluster has just ended, and is started again
        return []
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                parent = int((entry / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
                ours = (int(entry.name) if victim in {"raylet", "head"} else parent) in known
                ours = str(client.state) in line if victim == "host" else ours
                is_head = victim == "raylet" and '"server"' not in line
                if TITLES[victim] in line and ours and not is_head:
                    found.append(int(entry.name))
    return sorted(found)


def wait_whole(client: Client, gone: int | None = None) -> float:
    """Wait until the service is whole, with another controller than `gone`; how long it took [s]."""
    began = time.monotonic()
    while (gone is not None and client.controller() == gone) or not client.is_whole():
        if time.monotonic() - began > WHOLE_S:
            log = (client.state / "controller.log").read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"the service is not whole {WHOLE_S:g} s after a kill; its log ends with\n{log[-3000:]}")
        time.sleep(0.2)
    return time.monotonic() - began


def kill(victim: str) -> Fault:
    """End one process of this kind."""

    def harm(client: Client, rng: random.Random) -> str:
        candidates = processes(client, victim)
        if not candidates:
            return ""
        controller = client.controller()
        with suppress(ProcessLookupError):
            os.kill(rng.choice(candidates), signal.SIGKILL)
        time.sleep(1.0)
        wait_whole(client, controller if victim in {"head", "host", "controller"} else None)
        return "killed"

    return harm


def damage(client: Client, rng: random.Random) -> str:
    """Harm the checkpoints of a job in the system, then end every parameter server."""
    kept = [sorted((client.state / "checkpoints" / job).glob("*.ckpt")) for job in in_system(client)]
    kept = [paths for paths in kept if paths]
    if not kept:
        return ""
    paths, how = rng.choice(kept), rng.choice(["deleted", "cut short", "changed"])
    which = rng.choice(["all", "newest"])
    for path in paths if which == "all" else paths[-1:]:
        with suppress(FileNotFoundError):  # it may be pruned meanwhile
            content = path.read_bytes()
            if how == "deleted":
                path.unlink()
            else:
                path.write_bytes(content[: len(content) // 2] if how == "cut short" else content[:-1] + b"?")
    for pid in processes(client, "ps"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(1.0)
    wait_whole(client)
    return f"{which} {how}"


def fill(client: Client, rng: random.Random) -> str:
    """Leave no byte free for some seconds."""
    ballast = client.state.parent / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(min(1 << 20, max(shutil.disk_usage(ballast).free, 1))))
    time.sleep(rng.uniform(2.0, 6.0))
    if rng.choice([True, False]):
        for pid in processes(client, "ps"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(1.0)
    ballast.unlink()
    time.sleep(1.0)
    wait_whole(client)
    return "filled"


def shift(client: Client, rng: random.Random) -> str:
    """Set the clock, by which a new controller finds how long it was away, and end the controller."""
    by = rng.choice([-1, 1]) * rng.choice([60.0, 3600.0, DAY_S])
    now = float(client.clock.read_text(encoding="utf-8")) if client.clock.exists() else 0.0
    client.clock.write_text(str(now + by), encoding="utf-8")
    kill("controller")(client, rng)
    return "ahead" if by > 0 else "back"


def poison(client: Client, rng: random.Random) -> str:
    """Submit a job that must be refused, or fail alone."""
    what, fields = rng.choice(list(POISONS.items()))
    job = {**JOB, "name": "poison", **fields}
    with suppress(httpx.HTTPStatusError):
        client.ask("POST", "/jobs", content=json.dumps(job))
        what += ", taken"
    wait_whole(client)
    return what


def hang(client: Client, rng: random.Random) -> str:
    """Submit a job whose mini-batch never ends, and wait until it has failed."""
    del rng
    name = client.ask("POST", "/jobs", content=json.dumps({**JOB, "name": "hung", **HUNG}))
    began = time.monotonic()
    while (job := client.ask("GET", f"/jobs/{name}"))["ended_s"] is None:
        if time.monotonic() - began > WHOLE_S:
            raise SystemExit(f"{name} hangs, and is {job['state']} after {WHOLE_S:g} s")
        time.sleep(0.5)
    return "failed" if job["state"] == "FAILED" else job["state"]


def freeze(client: Client, rng: random.Random) -> str:
    """Stop one process for a while."""
    victim = rng.choice(("agent", "ps", "coordinator", "raylet", "controller"))
    candidates = processes(client, victim)
    if not candidates:
        return ""
    pid = rng.choice(candidates)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        time.sleep(rng.uniform(*FREEZE_S))
        os.kill(pid, signal.SIGCONT)
    time.sleep(1.0)
    wait_whole(client)
    return f"{victim} stopped"


def cut(client: Client, rng: random.Random) -> str:
    """Let no message pass for a while."""
    link = [IP, "-n", client.network, "link", "set", "lo"]
    subprocess.run([*link, "down"], check=True)
    time.sleep(rng.uniform(*CUT_S))
    subprocess.run([*link, "up"], check=True)
    time.sleep(1.0)
    wait_whole(client)
    return "cut"


def end_all(client: Client) -> None:
    """End all processes of the service at once, as a power cut does."""
    of_ray = set(json.loads((client.state / "ray.json").read_text(encoding="utf-8"))["processes"])
    ours = [int((client.state / "supervisor.pid").read_text(encoding="utf-8")), *of_ray]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                parent = int((entry / "stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[1])
                if str(client.state) in line or parent in of_ray:  # others may run Ray on this machine, too
                    ours.append(int(entry.name))
    for pid in ours:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    while any(Path(f"/proc/{pid}/exe").exists() for pid in ours):
        time.sleep(0.1)


def tear(client: Client, rng: random.Random) -> str:
    """End all processes, leave what was being written torn, and bring the service up again."""
    end_all(client)
    log = client.state / "journal.db-wal"
    if log.exists():
        with log.open("ab") as file:  # a page that was on its way: SQLite finds by its checksum that it is none
            file.write(rng.randbytes(rng.randrange(1, 5000)))
    for path in (client.state / "settings.json", client.state / "service.json", client.state / "journal.db"):
        path.with_name(f".{path.name}.1-1.partial").write_bytes(rng.randbytes(rng.randrange(1, 5000)))
    client.up()
    wait_whole(client)
    return "torn"


def change_journal(client: Client, rng: random.Random) -> str:
    """End all processes and change a byte of the journal, which must be noticed; put it back, and begin again."""
    end_all(client)
    check = [sys.executable, "-m", "skedge", "journal", "check", str(client.state)]
    # what is in the log is written into the database first, so that all entries are in one file
    with closing(sqlite3.connect(client.state / "journal.db")) as at:
        at.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        entries = at.execute("SELECT * FROM entries").fetchall()
    file = client.state / "journal.db"
    content = file.read_bytes()
    at_byte = rng.randrange(len(content))
    changed = content[:at_byte] + bytes([content[at_byte] ^ (1 << rng.randrange(8))]) + content[at_byte + 1 :]
    file.write_bytes(changed)
    noticed = subprocess.run(check, capture_output=True, text=True, check=False)
    if "Traceback" in noticed.stderr:
        raise SystemExit(f"a changed byte {at_byte} of the journal: {noticed.stderr}")
    if not noticed.returncode:
        with closing(sqlite3.connect(file)) as at:
            if at.execute("SELECT * FROM entries").fetchall() != entries:
                raise SystemExit(f"a changed byte {at_byte} of the journal was not noticed")
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    file.write_bytes(content)
    client.up()
    wait_whole(client)
    return "noticed" if noticed.returncode else "without effect"


FAULTS: dict[str, Fault] = {
    **{victim: kill(victim) for victim in (*TITLES, "controller")},
    "checkpoint": damage, "disk": fill, "clock": shift, "poison": poison, "hung": hang,
    "freeze": freeze, "cut": cut, "torn": tear, "journal": change_journal,
}  # fmt: skip
MAY_FAIL = {"checkpoint": "lost", "poison": "", "hung": "no mini-batch"}
"""Kinds after which a job may be FAILED, and what its sentence then has."""


def suffer(client: Client, kind: str, rng: random.Random) -> str:
    """Do harm of a kind, or of two at once; what was done, empty if there was nothing to harm."""
    kinds = kind.split("+")
    if len(kinds) == 1:
        return FAULTS[kind](client, rng)
    seeds = [rng.random() for _ in kinds]

    def harm(kind: str, seed: float) -> str:
        own = random.Random(seed)  # noqa: S311 - instants, not secrets
        time.sleep(own.uniform(0.0, 1.0))
        return FAULTS[kind](client, own)

    with ThreadPoolExecutor(len(kinds)) as pool:
        return " and ".join(filter(None, pool.map(harm, kinds, seeds)))


def in_system(client: Client) -> list[str]:
    """Names of the jobs in the system."""
    return [row["job"] for row in client.ask("GET", "/jobs") if row["ended_s"] is None]


def campaign(client: Client, kind: str, count: int, rng: random.Random) -> Campaign:
    """Do harm of one kind so often."""
    campaign = Campaign(kind)
    while len(campaign.done) < count:
        wait_whole(client)  # Ray may give a server up a while after its network was back
        keep_busy(client)
        time.sleep(rng.uniform(0.0, 3.0))
        began = time.monotonic()
        what = suffer(client, kind, rng)
        if what:
            campaign.done.append(what)
            campaign.recovery_s.append(time.monotonic() - began)
            sys.stderr.write(f"\r{kind}: {len(campaign.done)} of {count} done ")
            sys.stderr.flush()
    sys.stderr.write("\n")
    return campaign


def finish(client: Client) -> list[dict[str, Any]]:
    """Wait for every job; returns all of them, described."""
    began, left = time.monotonic(), list[str]()
    while time.monotonic() - began < WHOLE_S:
        with suppress(httpx.TransportError):  # the service begins again
            if not (left := in_system(client)):
                return [client.ask("GET", f"/jobs/{row['job']}") for row in client.ask("GET", "/jobs")]
        time.sleep(0.5)
    raise SystemExit(f"jobs do not complete: {', '.join(left)}")


def recorded(client: Client) -> dict[str, Any]:
    """What ``skedge record`` says; its violations are a sentence where it says nothing."""
    out = client.state.parent / "record"
    command = [sys.executable, "-m", "skedge", "record", "--state", str(client.state), "--out", str(out), "--json"]
    record = subprocess.run(command, capture_output=True, text=True, check=False)
    return json.loads(record.stdout) if record.stdout.startswith("{") else {"violations": [], "said": record.stderr}


def judged(done: Campaign, jobs: list[dict[str, Any]], said: dict[str, Any]) -> tuple[str, bool]:
    """The line of a kind, and whether anything is wrong."""
    failed = [job for job in jobs if job["state"] == "FAILED"]
    right = next((MAY_FAIL[kind] for kind in done.kind.split("+") if kind in MAY_FAIL), None)
    without = [job["job"] for job in failed if right is None or right not in job["message"] or not job["message"]]
    lost = [job["job"] for job in jobs if job["state"] not in {"FAILED", "COMPLETED"}] + without
    whole = [EPOCHS * MINIBATCHES] * CHUNKS
    uneven = [job["job"] for job in jobs if job["state"] == "COMPLETED" and job["progress_by_chunk"] != whole]
    rules = {violation["rule"]: violation["message"] for violation in reversed(said["violations"])}
    broken = "; ".join(f"{rule}: {what}" for rule, what in sorted(rules.items()))
    wrong = bool(lost or uneven or "said" in said or "M38" in rules)
    kinds = ", ".join(f"{times} {what}" for what, times in sorted(Counter(done.done).items()))
    line = (
        f"{done.kind}: {len(done.done)} faults ({kinds}), {len(jobs)} jobs, {len(failed)} failed with their sentence, "
        f"{len(lost)} lost ({', '.join(lost) or 'none'}), {len(uneven)} complete with other than their epochs; whole "
        f"again after {median(done.recovery_s):.1f} s (median), {max(done.recovery_s):.1f} s (most); every decision "
        f"taken again from the journal: {said.get('said', 'yes')}; rules broken: {broken or 'none'}"
    )
    return line, wrong


def main() -> None:
    """Run the campaign and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=50, help="faults of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", default="aonline")
    parser.add_argument(
        "--kind", default="agent,ps,raylet,controller", help=f"of {', '.join(FAULTS)}; A+B: both at once"
    )
    given = parser.parse_args()
    rng = random.Random(given.seed)  # noqa: S311 - instants, not secrets
    wrong = False
    for kind in given.kind.split(","):
        with service(given.policy, kind) as client:
            done = campaign(client, kind, given.count, rng)
            jobs = finish(client)
            skedge("down", "--state", str(client.state))
            line, found = judged(done, jobs, recorded(client))
        wrong |= found
        print(line, flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
