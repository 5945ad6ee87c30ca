"""Acts on a run from outside: asks it to stop, signals its processes, and reserves a run that is not alive."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence

from ..system import locks, stop_signals
from ..system.identity import Process
from ..system.locks import ENGINE_LOCK, Lock
from . import liveness
from .events import EVENTS_FILE
from .liveness import Liveness
from .run import ACTIVE_STATES, STATE_LABELS, WAITING, Run, RunError

# The signals to a process of gputui if a person asks it to stop. Only a second request of a person ends it at once.
ASKED_BY_PERSON = (signal.SIGTERM, stop_signals.BY_PERSON)


def request_stop(run: Run, numbers: Sequence[int] = ASKED_BY_PERSON) -> None:
    """Ask a run to stop. The first request ends it gracefully; a second request of a person ends it at once.

    `numbers` are the signals for its engine: ASKED_BY_PERSON, or the signal that a scheduler has sent. Raises RunError
    if the run is not running on this machine.
    """
    now = run.liveness
    refuse_elsewhere(run, now, "stop")
    for role in ("engine", "trainer"):
        process = run.process(role)
        if getattr(now, role) and process is not None and not now.starting:
            signal_process(run, role, process, numbers if role == "engine" else (signal.SIGTERM,))
            return
    state = run.state_of(now)
    if state == WAITING:
        raise RunError(f"{run.name} waits in the queue; gputui queue rm {run.name} takes it out")
    raise RunError(f"{run.name} is not running (it is {STATE_LABELS.get(state, state)})")


def signal_process(run: Run, role: str, process: Process, numbers: Sequence[int] = (signal.SIGTERM,)) -> None:
    """Send the signals `numbers` to `process`, the engine or trainer of a run.

    `role` is `engine` or `trainer`. Raises RunError, and sends nothing, if `process` has ended or cannot be verified to
    belong to the run and to this user.
    """
    holds = run.file(ENGINE_LOCK if role == "engine" else EVENTS_FILE)
    try:
        stop_signals.send(
            process,
            numbers,
            run.file("status.json"),
            lambda candidate: candidate.has_open(holds) or candidate.serves(run.path),
        )
    except stop_signals.NotVerified as fault:
        raise RunError(f"{run.name}: {fault}: no signal is sent") from None


def refuse_elsewhere(run: Run, now: Liveness, verb: str) -> None:
    """Raise RunError if the run is running on another machine according to `now`.

    `verb` is the command that the message proposes for that machine, such as `stop`.
    """
    if now.host:
        raise RunError(f"{run.name} is running on {now.host}; {verb} it there: gputui {verb} {run.name}")


def waiting_error(run: Run, verb: str) -> RunError:
    """Return the error that refuses an action on a run because it waits in the queue. `verb` is that of `reserved`."""
    return RunError(f"{run.name} cannot be {verb}d: it waits in the queue; gputui queue rm {run.name} takes it out")


@contextlib.contextmanager
def reserved(run: Run, verb: str, from_queue: bool = False) -> Iterator[Lock]:
    """Hold and yield the lock of a run that is not alive, so that no other process starts or deletes it meanwhile.

    Raises RunError if the run is alive or queued, or if its lock cannot be taken. `verb` is for the message, and ends
    with the letter e, such as `delete`. With `from_queue`, a queued run is allowed, as the queue itself starts it.
    """
    now = liveness.check_closely(run.path, lambda: run.status)
    refuse_elsewhere(run, now, verb)
    state = run.state_without_queue(now) if from_queue else run.state_of(now)
    if state == WAITING:
        raise waiting_error(run, verb)
    if state in ACTIVE_STATES:
        raise RunError(f"{run.name} cannot be {verb}d: it is {state}; stop it before {verb[:-1]}ing it")
    try:
        lock = locks.take(run.file(ENGINE_LOCK))
    except locks.Taken:
        raise RunError(f"{run.name} cannot be {verb}d: it is running, or another gputui is using it") from None
    except OSError as fault:
        raise RunError(f"{run.name} cannot be locked: {fault.strerror or fault}: {fault.filename}") from None
    with lock:
        if run.liveness.trainer:
            raise RunError(f"{run.name} cannot be {verb}d: its trainer has not ended yet")
        yield lock
