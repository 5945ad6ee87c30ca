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
from typing import Any

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
    """The process and the channels to it: `lifeline` takes requests to stop, `report` has the result that the trainer
    could not write to disk (both descriptors of pipes); `heartbeat` is in shared memory.
    """

    process: subprocess.Popen[bytes] | Child
    lifeline: int
    report: int
    heartbeat: TrainerHeartbeat


class Channels:
    """The pipes between an engine and its trainer, and the heartbeat's memory. The engine closes `trainers`."""

    def __init__(self) -> None:
        reader, self.lifeline = os.pipe()
        self.report, their_report = os.pipe()
        self.heartbeat, self.memory = heartbeat.create_shared()
        self.trainers = [reader, their_report] + ([] if self.memory is None else [self.memory])

    def environment(self, clock: RunClock | None) -> dict[str, str]:
        """The variables include the launch of the run if `clock` is given."""
        names = ("GPUTUI_LIFELINE", "GPUTUI_REPORT", heartbeat.VARIABLE)
        variables = dict(zip(names, map(str, self.trainers), strict=False))
        return variables | ({VARIABLE: clock.as_text()} if clock else {})


def start_trainer(run_folder: str, clock: RunClock | None = None, python: str | None = None) -> Trainer:
    """Raises OSError. The trainer notices the end of this process by the end of its lifeline; until it reads that, the
    kernel kills it. One that waits for a run has WARM as its folder, and needs `python`.
    """
    module = "process.command" if python is None and _options(run_folder)["workload"].get("command") else "trainer"
    channels, python = Channels(), python or python_of(run_folder)
    process = child_process.start(
        interpreter.command(python, f"gputui.engine.{module}", run_folder),
        stdin=subprocess.DEVNULL,
        env=interpreter.environment(python) | channels.environment(clock),
        pass_fds=channels.trainers,
    )
    for descriptor in channels.trainers:
        os.close(descriptor)
    return Trainer(process, channels.lifeline, channels.report, channels.heartbeat)


def python_of(run_folder: str) -> str:
    """Return that of the folder's options.json, or gputui's own. OSError if the file cannot be read or is damaged."""
    return _options(run_folder)["run"].get("python") or sys.executable


def _options(run_folder: str) -> dict[str, Any]:
    path = os.path.join(run_folder, OPTIONS)
    try:
        with open(path, encoding="utf-8") as stream:
            groups = json.load(stream)
        return {name: dict(groups[name]) for name in ("run", "workload")}
    except (ValueError, KeyError, TypeError):
        raise OSError(errno.EINVAL, "is damaged", path) from None


def forked_trainer() -> Trainer | None:
    """The trainer that this process forked before it became an engine (trainer/fork_server.py), if any."""
    numbers = [int(number) for number in os.environ.pop(FORKED, "").split()]
    if not numbers:
        return None
    pid, lifeline, report, *memory = numbers
    for descriptor in (lifeline, report):
        os.set_inheritable(descriptor, False)
    return Trainer(Child(pid), lifeline, report, TrainerHeartbeat.inherited(str(memory[0]) if memory else None))


def write_to_log(run_folder: Path) -> None:
    """All output of this process from now on, if the log can be opened."""
    with contextlib.suppress(OSError):
        log = os.open(run_folder / "engine.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.close(log)


def own_lock(path: Path) -> Lock:
    """The lock that the parent has passed to this process, else that of `path`. Raises locks.Taken or OSError."""
    given = os.environ.pop(LOCK, None)
    return locks.inherited(int(given)) if given else locks.take(path)


def put_result_aside(run_folder: Path) -> None:
    """Rename the result of a former launch to the next `result-N.json`."""
    if os.path.exists(run_folder / "result.json"):
        number = places.next_number(run_folder, "result-", ".json")
        os.rename(run_folder / "result.json", run_folder / f"result-{number}.json")


def take_run() -> tuple[str, Lock | None, str]:
    """Wait for a run on the socket on standard input: the line of `addressed` (empty if none came), its lock, and its
    leases as in the variable LEASED. Afterwards standard input is /dev/null.
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
    """One line that passes a run to a waiting process."""
    return f"{clock.as_text()} {run_folder}"


def read_address(address: str) -> tuple[RunClock, str]:
    date, mark, run_folder = address.split(" ", 2)
    return RunClock.read(f"{date} {mark}"), run_folder


def wake(trainer: Trainer, clock: RunClock, run_folder: str) -> Trainer:
    """Pass the run to the waiting trainer; if that has ended, start another one."""
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
