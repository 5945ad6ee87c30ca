"""Starts the trainer of a run. The module imports little, as an engine starts its trainer first."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..files import places
from ..interpreter import interpreter
from ..system import child_process, heartbeat, locks
from ..system.child_process import Child
from ..system.heartbeat import TrainerHeartbeat
from ..system.locks import Lock
from ..system.run_clock import VARIABLE, RunClock

OPTIONS = "options.json"  # in a run folder, as options_json.FILE; importing that takes too long here
WARM = "--warm"  # argument in place of a run folder, which is then sent later
FORK_SERVER = "--fork-server"  # last argument of a process that forks the trainers of all runs in a folder
DUMP_STACKS = signal.SIGUSR1  # on this signal a trainer writes the stack of each of its threads into the log
MOST_LEASES = 64  # leases that a run can have
LOCK = "GPUTUI_LOCK"  # environment variable of an engine or a proof: the descriptor of its lock
FORKED = "GPUTUI_FORKED"  # environment variable of an engine whose trainer already runs: its pid, and descriptors


@dataclass(frozen=True)
class Trainer:
    """The process of a trainer, and the channels to it.

    `lifeline` is the descriptor of the pipe on which requests to stop are sent, `report` that of the pipe with the
    result that the trainer could not write to disk. `heartbeat` is in shared memory.
    """

    process: subprocess.Popen[bytes] | Child
    lifeline: int
    report: int
    heartbeat: TrainerHeartbeat


class Channels:
    """The pipes between an engine and its trainer, and the shared memory of the heartbeat.

    `lifeline` and `report` are the engine's descriptors; `trainers` are those for the trainer, which the engine closes.
    """

    def __init__(self) -> None:
        reader, self.lifeline = os.pipe()
        self.report, their_report = os.pipe()
        self.heartbeat, self.memory = heartbeat.create_shared()
        self.trainers = [reader, their_report] + ([] if self.memory is None else [self.memory])

    def environment(self, clock: RunClock | None) -> dict[str, str]:
        """Return the environment variables that pass the descriptors to the trainer and, if `clock` is given, the
        launch of the run.
        """
        names = ("GPUTUI_LIFELINE", "GPUTUI_REPORT", heartbeat.VARIABLE)
        variables = dict(zip(names, map(str, self.trainers), strict=False))
        return variables | ({VARIABLE: clock.as_text()} if clock else {})


def start_trainer(run_folder: str, clock: RunClock | None = None, python: str | None = None) -> Trainer:
    """Start the trainer of a run, and return it. The trainer notices the end of this process by the end of its
    lifeline.

    Until the trainer reads the lifeline, the kernel kills it if this process ends. `python` is its interpreter, by
    default the interpreter in the run's options. For a trainer that waits for a run, `run_folder` is WARM and `python`
    is needed. Raises OSError if the trainer cannot be started.
    """
    channels, python = Channels(), python or python_of(run_folder)
    process = child_process.start(
        interpreter.command(python, "gputui.engine.trainer", run_folder),
        stdin=subprocess.DEVNULL,
        env=interpreter.environment(python) | channels.environment(clock),
        pass_fds=channels.trainers,
    )
    for descriptor in channels.trainers:
        os.close(descriptor)
    return Trainer(process, channels.lifeline, channels.report, channels.heartbeat)


def python_of(run_folder: str) -> str:
    """Return the path of the interpreter in which the run in `run_folder` trains, from its options.json; gputui's own
    if the options name none.

    Raises OSError if that file cannot be read or is damaged.
    """
    path = os.path.join(run_folder, OPTIONS)
    try:
        with open(path, encoding="utf-8") as stream:
            given = json.load(stream)["run"]["python"]
    except (ValueError, KeyError, TypeError):
        raise OSError(errno.EINVAL, "is damaged", path) from None
    return given or sys.executable


def forked_trainer() -> Trainer | None:
    """Return the trainer that this process forked before it became an engine (trainer/fork_server.py); None if there is
    none.
    """
    numbers = [int(number) for number in os.environ.pop(FORKED, "").split()]
    if not numbers:
        return None
    pid, lifeline, report, *memory = numbers
    for descriptor in (lifeline, report):
        os.set_inheritable(descriptor, False)
    return Trainer(Child(pid), lifeline, report, TrainerHeartbeat.inherited(str(memory[0]) if memory else None))


def write_to_log(run_folder: Path) -> None:
    """From now on, write all output of this process to the run's log.

    If the log cannot be opened, the output is not redirected.
    """
    with contextlib.suppress(OSError):
        _write_to(run_folder / "engine.log")


def _write_to(path: Path) -> None:
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)


def own_lock(path: Path) -> Lock:
    """Return the lock that the parent has passed to this process; if it has passed none, take the lock of the file
    `path`.

    Raises locks.Taken if another process holds it. Raises OSError if it cannot be opened.
    """
    given = os.environ.pop(LOCK, None)
    return locks.inherited(int(given)) if given else locks.take(path)


def put_result_aside(run_folder: Path) -> None:
    """Rename the result of a run's former launch to the next name `result-N.json`, if there is one."""
    if os.path.exists(run_folder / "result.json"):
        number = places.next_number(run_folder, "result-", ".json")
        os.rename(run_folder / "result.json", run_folder / f"result-{number}.json")


def take_run() -> tuple[str, Lock | None, str]:
    """Wait for a run, its lock and its leases, which are sent to the socket on standard input.

    Returns the line that `addressed` makes (empty if none came), the lock or None, and the leases in the form of the
    environment variable LEASED. Afterwards standard input is /dev/null.
    """
    import socket  # only an engine that waits for a run needs it

    address, lock, leased = "", None, ""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(0)) as line:
        name, descriptors, _, _ = socket.recv_fds(line, 65536, MOST_LEASES + 1)
        if name and descriptors:
            address, _, names = os.fsdecode(name).rpartition("\n")
            lock = locks.inherited(descriptors[0])
            leased = ",".join(f"{fd} {each}" for fd, each in zip(descriptors[1:], names.split(","), strict=False))
            line.sendall(b"\n")  # confirm that the run is accepted
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return address, lock, leased


def addressed(clock: RunClock, run_folder: str | Path) -> str:
    """Return one line that passes a run to a waiting process: the time of its launch, and its folder."""
    return f"{clock.as_text()} {run_folder}"


def read_address(address: str) -> tuple[RunClock, str]:
    """Return the clock and the run folder in a line that `addressed` has made."""
    date, mark, run_folder = address.split(" ", 2)
    return RunClock.read(f"{date} {mark}"), run_folder


def wake(trainer: Trainer, clock: RunClock, run_folder: str) -> Trainer:
    """Pass the run in `run_folder` to the waiting trainer, and return that trainer. If it has ended, start and return
    another one.
    """
    try:
        if trainer.process.poll() is None:
            os.write(trainer.lifeline, os.fsencode(f"{addressed(clock, run_folder)}\n"))
            return trainer
    except BrokenPipeError:
        pass
    print("gputui: the waiting trainer has ended; a new one is started", file=sys.stderr, flush=True)
    os.close(trainer.lifeline)
    os.close(trainer.report)
    places.remove_scratch()
    places.make_scratch()
    return start_trainer(run_folder, clock)
