"""Points of a sweep on an existing Ray cluster.

Ray ends a process that is connected to a cluster, without an exception, when it loses the cluster. So another process
is connected, and this one says what has happened.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Generator
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
from joblib.externals.loky.backend.context import get_context

from skedge.core.errors import InputError, SkedgeError
from skedge.platform.signals import deferred_signals

from .cluster import check_answers

_LOST_S = "15"
"""Time for which a cluster may not answer [s]."""

_END_S, _POLL_S = 10.0, 0.02
"""Time that the other process has to end, and time after which it looks for results again [s]."""


def on_ray(tasks: deque[Any], address: str, program: Callable[[], str]) -> Generator[Any, None, None]:
    """Do joblib's `tasks` on the cluster at `address`, one per CPU; those of a node that is lost are done elsewhere.

    Tasks may be added while results are taken. `program` must return the same on every node.

    Raises
    ------
    InputError
        If Ray is not installed, or the address is empty.
    SkedgeError
        If no cluster is there, or it is lost, or a node has another program; and what a task raises.
    """
    if importlib.util.find_spec("ray") is None:
        raise InputError("--ray needs Ray: pip install 'skedge[live]'")
    check_answers(address)
    context = get_context("loky")
    parent_end, child_end = context.Pipe()
    process = context.Process(target=_drive, args=(child_end, address, cloudpickle.dumps(program)), daemon=True)
    with deferred_signals():  # Ctrl-C and SIGTERM do not reach it
        process.start()
    child_end.close()
    n_running = 0
    try:
        while tasks or n_running:
            messages = [cloudpickle.dumps(tasks.popleft()) for _ in range(len(tasks))]
            # the new tasks, less the one whose result comes as the answer
            n_running += len(messages) - 1
            yield _answer(parent_end, messages, address)
    finally:
        parent_end.close()
        # a closed connection makes the other process end; Ray may hang while it disconnects
        process.join(_END_S)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            process.join()


def _answer(parent_end: Connection, messages: list[bytes], address: str) -> Any:
    """Send the new tasks, and wait for a result of any."""
    try:
        parent_end.send(messages)
        succeeded, answer = pickle.loads(parent_end.recv_bytes())  # noqa: S301 - of our own process
    except (EOFError, OSError) as error:
        raise SkedgeError(f"the Ray cluster at {address} was lost") from error
    if not succeeded:
        raise answer
    return answer


def _drive(child_end: Connection, address: str, program: bytes) -> None:
    """The other process."""
    for stream in (1, 2):  # Ray's own words, also when it ends this process
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    try:
        _serve(child_end, address, program)
    except EOFError:
        return
    except SkedgeError as error:
        child_end.send_bytes(pickle.dumps((False, error)))
    except Exception:  # nobody reads what this process prints
        child_end.send_bytes(pickle.dumps((False, RuntimeError(traceback.format_exc()))))


def _serve(child_end: Connection, address: str, program: bytes) -> None:
    """Answer each message, a list of new tasks, with the next result."""
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", _LOST_S)  # Ray waits at full load; 60 s by default
    import ray  # noqa: PLC0415 - Ray is an extra, and this process is its own

    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise SkedgeError(f"no Ray cluster answers at {address}: {error}") from error
    program_hash, pending_refs = pickle.loads(program)(), list[Any]()  # noqa: S301 - of our own process
    # lost nodes must not end a study: their tasks are tried again without limit
    remote = ray.remote(_run_on_node).options(num_cpus=1, max_retries=-1)
    try:
        while True:
            pending_refs += [remote.remote(program, program_hash, task) for task in child_end.recv()]
            ready_refs = list[Any]()
            while not ready_refs:
                # poll, as a blocking wait would not notice that the connection was closed
                ready_refs, pending_refs = ray.wait(pending_refs, num_returns=1, timeout=0)
                if not ready_refs and child_end.poll(_POLL_S):  # only its end comes before the answer
                    return
            child_end.send_bytes(_result(ray, ready_refs[0], address))
    finally:
        for ref in pending_refs:
            # force: a task under way may take hours
            ray.cancel(ref, force=True)
        ray.shutdown()


def _result(ray: Any, ref: Any, address: str) -> bytes:
    """The message on a task that has ended: whether it has a result, and that or the error."""
    failed: Exception
    try:
        return bytes(ray.get(ref))
    except ray.exceptions.RayTaskError as error:
        failed = RuntimeError(str(error))  # it contains the whole traceback
        if isinstance(error.cause, SkedgeError):
            failed = error.cause
        elif isinstance(error.cause, ImportError):
            failed = SkedgeError(_OTHER_PROGRAM)
    except ray.exceptions.RayError as error:
        failed = SkedgeError(f"the Ray cluster at {address} lost a point: {error}")
    return cloudpickle.dumps((False, failed))


_OTHER_PROGRAM = (
    "a node of the Ray cluster has another skedge or other libraries, or none: every node needs the same ones"
)


def _run_on_node(program: bytes, program_hash: str, task: bytes) -> bytes:
    """Do a task on a node."""
    # results of another version would be cached under keys of this one
    if pickle.loads(program)() != program_hash:  # noqa: S301 - sent by the user's own command
        raise SkedgeError(_OTHER_PROGRAM)
    function, args, kwargs = pickle.loads(task)  # noqa: S301
    return cloudpickle.dumps((True, function(*args, **kwargs)))
